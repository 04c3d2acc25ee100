# Console scripts of the packages that this person installs (allotment.packages.hook does it for kernels);
# also before the first one is there.
case "$ALLOTMENT_ENVIRONMENT" in
  "" | *[!a-z0-9._-]* | [._-]*) ;;
  *)
    for allotment_root in /usr/lib/python3.[0-9]*; do
      allotment_root="$HOME/.allotment/packages/$ALLOTMENT_ENVIRONMENT/${allotment_root##*/}"
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
