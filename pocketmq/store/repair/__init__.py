"""What an earlier process left: recovery, verification, repair, differences."""
