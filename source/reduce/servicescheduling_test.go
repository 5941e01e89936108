package reduce

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestScheduling(t *testing.T) {
	const (
		scheduler = "metadata.annotations[sluice.dev/ipvs-scheduler]"
		flags     = "metadata.annotations[sluice.dev/ipvs-flags]"
		absent    = "-"
	)
	tests := []struct {
		name             string
		scheduler, flags string
		want             service.Scheduling
		// warned is a field, and words are what its warning has to say.
		warned string
		words  []string
	}{
		{"not asked for", absent, absent, service.Scheduling{}, "", nil},
		{"a scheduler", "lc", absent, service.Scheduling{Scheduler: "lc"}, "", nil},
		{"blanks around", " sh ", " sh-port , sh-fallback ", service.Scheduling{Scheduler: "sh", Ports: true, Fallback: true}, "", nil},
		{"sh counts no ports unless told", "sh", absent, service.Scheduling{Scheduler: "sh"}, "", nil},
		{"one flag", "sh", "sh-fallback", service.Scheduling{Scheduler: "sh", Fallback: true}, "", nil},
		{"mh counts ports", "mh", absent, service.Scheduling{Scheduler: "mh", Ports: true}, "", nil},
		{"mh with flags has just these", "mh", "mh-fallback", service.Scheduling{Scheduler: "mh", Fallback: true}, "", nil},
		{"mh without flags", "mh", "", service.Scheduling{Scheduler: "mh"}, "", nil},
		{"no flags for one that has none", "rr", "", service.Scheduling{Scheduler: "rr"}, "", nil},
		{"nonsense", "fastest", absent, service.Scheduling{}, scheduler, []string{`"fastest"`, "rr, sed, sh", "node's scheduler"}},
		{"empty", "", absent, service.Scheduling{}, scheduler, []string{`""`}},
		{"nonsense with flags", "fastest", "sh-port", service.Scheduling{}, scheduler, []string{`"fastest"`}},
		{"flags alone", absent, "sh-port", service.Scheduling{}, flags, []string{`"sh-port"`, "sluice.dev/ipvs-scheduler"}},
		{"flags of another one", "sh", "mh-port", service.Scheduling{}, flags, []string{`"mh-port"`, "sh-port, sh-fallback"}},
		{"flags where there are none", "rr", "sh-port", service.Scheduling{}, flags, []string{`"sh-port"`, "rr", "mh and sh"}},
		{"half nonsense", "sh", "sh-port,ponies", service.Scheduling{}, flags, []string{`"ponies"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec, warnings := Service(newService(func(o *corev1.Service) {
				o.Annotations = map[string]string{"other": "x"}
				for name, value := range map[string]string{annotationScheduler: tt.scheduler, annotationFlags: tt.flags} {
					if value != absent {
						o.Annotations[name] = value
					}
				}
			}))
			if spec.Scheduling != tt.want {
				t.Errorf("got %+v, want %+v", spec.Scheduling, tt.want)
			}
			if tt.warned == "" {
				checkWarnings(t, warnings, "Service ns1/svc1")
				return
			}
			checkWarnings(t, warnings, "Service ns1/svc1", tt.warned)
			for _, words := range tt.words {
				if !strings.Contains(warnings[0].Problem, words) {
					t.Errorf("%q does not say %q", warnings[0].Problem, words)
				}
			}
		})
	}
}
