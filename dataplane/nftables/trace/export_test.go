package trace

// SetPacketsPerSecond changes the limit, and returns the one before.
func SetPacketsPerSecond(limit uint64) (before uint64) {
	before, packetsPerSecond = packetsPerSecond, limit
	return before
}
