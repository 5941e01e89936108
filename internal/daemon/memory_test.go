package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGroupLimit(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  int64
		ok    bool
	}{
		"no control groups": {},
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/kubepods/pod1/memory.max": "50000000\n",
			"sys/fs/cgroup/kubepods/memory.max": "max\n",
		}, 50000000, true},
		"version 2, a lower limit above": {map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/kubepods/pod1/memory.max": "50000000\n",
			"sys/fs/cgroup/kubepods/memory.max": "40000000\n",
		}, 40000000, true},
		"version 2 in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "30000000\n",
		}, 30000000, true},
		"version 2 without a limit": {map[string]string{
			"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/memory.max": "max\n",
		}, 0, false},
		"version 1 beside an empty version 2": {map[string]string{
			"proc/self/cgroup": "9:name=systemd:/\n4:memory:/pod\n1:cpu:/\n0::/\n",
			"sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "20000000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
		}, 20000000, true},
		"version 1 in a container that does not see its path": {map[string]string{
			"proc/self/cgroup": "4:memory:/kubepods/pod1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "10000000\n",
		}, 10000000, true},
		"version 1 without a limit": {map[string]string{
			"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, content := range tt.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, ok := groupLimit(root)
			if ok != tt.ok || ok && got != tt.want {
				t.Errorf("%d, %t, want %d, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}
