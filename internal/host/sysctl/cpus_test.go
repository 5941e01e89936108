package sysctl

import (
	"runtime"
	"testing"
)

func TestCPUs(t *testing.T) {
	const at = "sys/devices/system/cpu/"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"three", map[string]string{
			at + "cpu0/topology/core_id": "0", at + "cpu1/topology/core_id": "0", at + "cpu12/topology/core_id": "6",
		}, 3},
		{"one is switched off", map[string]string{
			at + "cpu0/topology/core_id": "0", at + "cpu1/online": "0", at + "cpu2/online": "1", at + "cpu2/topology/core_id": "1",
		}, 2},
		{"one is on its way out", map[string]string{
			at + "cpu0/topology/core_id": "0", at + "cpu1/online": "0", at + "cpu1/topology/core_id": "1",
		}, 1},
		{"folders that are none", map[string]string{
			at + "cpu0/topology/core_id": "0", at + "cpufreq/topology/core_id": "0", at + "cpuidle/x": "",
		}, 1},
		{"sysfs says nothing", map[string]string{"proc/x": ""}, runtime.NumCPU()},
	} {
		if got := newRoot(t, tt.files).CPUs(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
