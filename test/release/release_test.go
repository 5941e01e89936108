package release

import (
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
)

// What an earlier translation has left is not written beside its like again. Once, chains had
// each rule twice after a second upgrade.
func TestTranslationWritesNothingTwice(t *testing.T) {
	chain := func(name, body string) dataplane.Object {
		return dataplane.Object{ID: dataplane.ID{Container: "chain", Name: name}, Kind: dataplane.Owned, Body: body}
	}
	older, newer := chain("klaster-2a", "older"), chain("cluster-2a", "newer")
	for _, found := range [][]dataplane.Object{{newer, older}, {older, newer}} {
		got := Translated(found)
		if len(got) != 1 || got[0].ID.Name != "klaster-2a" || got[0].Body != "newer" {
			t.Errorf("%v became %v, want the newer one alone", found, got)
		}
	}
	if got := Translated([]dataplane.Object{older}); !slices.Equal(got, []dataplane.Object{older}) {
		t.Errorf("%v became %v, want no change", older, got)
	}
}
