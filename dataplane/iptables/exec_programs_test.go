package iptables

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// fakePrograms makes PATH hold nothing but programs that print a version.
func fakePrograms(t *testing.T, printed map[string]string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range printed {
		for _, suffix := range [...]string{"", "-restore", "-save"} {
			script := "#!/bin/sh\necho '" + text + "'\n"
			if err := os.WriteFile(filepath.Join(folder, name+suffix), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", folder)
}

func TestFindPrograms(t *testing.T) {
	for _, tt := range []struct {
		name    string
		present map[string]string
		family  service.Family
		variant Variant
		want    string // the program's name, or the words of the error
	}{
		{"by its name", map[string]string{"iptables-nft": "iptables v1.8.9 (nf_tables)", "iptables": "iptables v1.8.9 (legacy)"}, service.IPv4, NFT, "iptables-nft"},
		{"by what it says", map[string]string{"ip6tables": "ip6tables v1.8.4 (nf_tables)"}, service.IPv6, NFT, "ip6tables"},
		{"before there were variants", map[string]string{"iptables": "iptables v1.6.2"}, service.IPv4, Legacy, "iptables"},
		{"the other variant", map[string]string{"iptables": "iptables v1.8.4 (nf_tables)"}, service.IPv4, Legacy, "is of the nft variant"},
		{"too old", map[string]string{"iptables": "iptables v1.6.1"}, service.IPv4, Legacy, "is version 1.6.1, too old; needed: iptables 1.6.2 or newer"},
		{"none", nil, service.IPv6, Legacy, "Debian package iptables"},
		{"not iptables", map[string]string{"iptables": "busybox"}, service.IPv4, Legacy, `no version of iptables in "busybox`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fakePrograms(t, tt.present)
			found, err := findPrograms(t.Context(), tt.family, tt.variant)
			if err == nil {
				if filepath.Base(found.iptables) != tt.want || filepath.Base(found.restore) != tt.want+"-restore" || filepath.Base(found.save) != tt.want+"-save" {
					t.Errorf("found %+v, want %s", found, tt.want)
				}
				return
			}
			missing, ok := errors.AsType[*MissingError](err)
			if !ok || missing.Family != tt.family || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want a MissingError for %v with %q", err, tt.family, tt.want)
			}
		})
	}
}

func TestVersionLess(t *testing.T) {
	ascending := []version{{1, 4, 21}, {1, 6, 1}, {1, 6, 2}, {1, 8, 0}, {1, 10, 0}, {2, 0, 0}}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := a.less(b); got != (i < j) {
				t.Errorf("%v less than %v: %v", a, b, got)
			}
		}
	}
}
