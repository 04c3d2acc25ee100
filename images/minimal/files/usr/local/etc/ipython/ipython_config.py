"""Read by every IPython of this image: where its history goes when the home cannot lock files."""

import os

aside = os.environ.get("ALLOTMENT_HOME_WITHOUT_LOCKS")
if aside:
    c.HistoryManager.hist_file = os.path.join(aside, "history.sqlite")  # noqa: F821, PTH118
