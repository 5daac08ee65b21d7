"""Programs that know nothing of runs: their calls to the outside recorded, answered from the record, sealed off."""
