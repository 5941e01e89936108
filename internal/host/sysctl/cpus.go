package sysctl

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// CPUs is the number of logical CPUs that the machine runs, whichever of them this
// process may use. Where sysfs does not tell, it is the number of those.
func (f Files) CPUs() int {
	// A CPU that is switched off has no topology; the file "online" is missing
	// for those that cannot be switched.
	found, _ := filepath.Glob(filepath.Join("/", f.Root, "sys/devices/system/cpu/cpu[0-9]*/topology"))
	count := 0
	for _, topology := range found {
		online, err := os.ReadFile(filepath.Join(filepath.Dir(topology), "online"))
		if errors.Is(err, os.ErrNotExist) || err == nil && len(online) > 0 && online[0] == '1' {
			count++
		}
	}
	if count == 0 {
		return runtime.NumCPU()
	}
	return count
}
