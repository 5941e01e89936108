// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestNames_LongestLoad: the real tools load the rules of Services with the longest allowed names.
func TestNames_LongestLoad(t *testing.T) {
	long := func(letter string) string { return strings.Repeat(letter, 63) }
	cache, warnings := cluster(names{long("n"), long("w"), long("p"), "", strings.Repeat("z", 253)})
	if len(cache.Keys()) != 1 {
		t.Fatal(warnings)
	}
	_, nft, err := forNFT(cache)
	if err != nil {
		t.Fatal(err)
	}
	_, ipt, err := forIPTables(cache)
	if err != nil {
		t.Fatal(err)
	}
	for program, text := range map[string]string{"nft -f -": nft, "iptables-nft-restore": ipt, "iptables-legacy-restore": ipt} {
		words := strings.Fields(program)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdin = strings.NewReader(text)
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := netnstest.Run(netnstest.New(t, "node"), cmd); err != nil {
			t.Errorf("%s: %v: %s", program, err, said.String())
		}
	}
}
