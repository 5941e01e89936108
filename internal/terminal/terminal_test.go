// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-proxy/sluice/test/terminaltest"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "",
		`plain "text" \x1b é`: `plain "text" \x1b é`,
		"\x1b[2J\a\r\n\t\x7f": `\x1b[2J\a\r\n\t\x7f`,
		"a\u202eb\u009bc\xff": `a\u202eb\u009bc\xff`,
		"\ufffd \U000e0041":   "\ufffd " + `\U000e0041`,
	} {
		if got := Text(text); got != want || Text(got) != got {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := Lines("a\r\nb\n"); got != "a\\r\nb\n" {
		t.Errorf("%q", got)
	}
}

// TestJSON_PreservesValue: JSON escapes what is not printable and keeps the value.
func TestJSON_PreservesValue(t *testing.T) {
	text := "\x7f\u009b\u202e\U000e0041é" + terminaltest.Hostile
	made, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if made = JSON(made); !Printable(made) || json.Unmarshal(made, &got) != nil || got != text {
		t.Errorf("%s: %q", made, got)
	}
}

// TestYAML_PreservesValue: YAML keeps the value, also with characters that YAML allows only in escapes.
func TestYAML_PreservesValue(t *testing.T) {
	want := map[string]string{"text": "\x7f\u0080\u0085\u009b\u2028\u202e\ufeff\ufffe\U000e0041é" + terminaltest.Hostile}
	made, err := YAML(want)
	var got map[string]string
	if err == nil {
		err = yaml.Unmarshal(made, &got)
	}
	if err != nil || got["text"] != want["text"] {
		t.Errorf("%v, %s: %q", err, made, got)
	}
}

// TestClean_ReachesAllFields: Clean cleans the texts in all fields.
func TestClean_ReachesAllFields(t *testing.T) {
	type inner struct{ S string }
	type answer struct {
		inner
		Pointer *inner
		List    []inner
		Array   [1]string
		Map     map[string]inner
		Any     any
		At      netip.AddrPort
		Bytes   []byte
		Several string `terminal:"lines"`
	}
	bad := "\x1b\n"
	a := answer{
		inner{bad}, &inner{bad}, []inner{{bad}}, [1]string{bad}, map[string]inner{bad: {bad}}, map[string]any{"x": []any{bad}},
		netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(bad), 1), []byte(bad), bad,
	}
	Clean(&a)
	const good = `\x1b\n`
	if a.S != good || a.Pointer.S != good || a.List[0].S != good || a.Array[0] != good || a.Map[good].S != good || len(a.Map) != 1 ||
		a.Any.(map[string]any)["x"].([]any)[0] != good || a.At.Addr().Zone() != good || !bytes.Equal(a.Bytes, []byte(bad)) || a.Several != "\\x1b\n" {
		t.Errorf("%+v", a)
	}
}
