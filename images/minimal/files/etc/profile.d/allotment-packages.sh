# Console scripts of the packages that this person installed (allotment.packages.hook does it for kernels).
case "$ALLOTMENT_ENVIRONMENT" in
  "" | *[!a-z0-9._-]* | [._-]*) ;;
  *)
    for allotment_root in "$HOME/.allotment/packages/$ALLOTMENT_ENVIRONMENT/python"[0-9]*; do
      # only the running Python's: the image has one
      [ -d "/usr/lib/${allotment_root##*/}" ] || continue
      case ":$PATH:" in
        *":$allotment_root/bin:"*) ;;
        *) PATH="$allotment_root/bin:$PATH" ;;
      esac
      [ -r "$allotment_root/broken.txt" ] && cat "$allotment_root/broken.txt" >&2
    done
    unset allotment_root
    export PATH
    ;;
esac
