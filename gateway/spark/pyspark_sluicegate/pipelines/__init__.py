"""Programs for `spark-submit`, each of them a whole job: read, written, watched."""
