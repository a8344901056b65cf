#!/bin/sh
# In place of the script of Flink's image that starts a JobManager.
exec /usr/bin/python3 -u /opt/flink/bin/job-manager.py "$@"
