"""The journal: every change of the state and every question about it, one JSON line each.

It must not decide anything; feeding it back is `extender.live.replaying`.
"""

from extender.journal.journal import FileJournal, Journal, JournaledSink, read_journal
from extender.journal.recording import Recorder

__all__ = ["FileJournal", "Journal", "JournaledSink", "Recorder", "read_journal"]
