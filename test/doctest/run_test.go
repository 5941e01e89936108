// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// page writes a page; ~~~ stands for a fence.
func page(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "~~~", "```")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	Run(t, page(t, `
~~~console background
$ echo "  to run: cat /dev/null $$"; echo ready; sleep 1000
…
ready
~~~
~~~sh
echo one >file
cat \
  file
~~~
~~~console
$ cat file; echo two   words; echo three
one
two …ds
$ pwd
…
~~~
~~~console await
$ echo x >>tries; cat tries
x
x
~~~
~~~sh exit=3
exit 3
~~~
~~~console figures
$ echo "up 1m2.5s since 2026-01-01T10:00:00.5Z, 17 batches"
up 3ms since 2025-12-31T09:00:00Z, 4 batches
~~~
~~~nft
exit 4
~~~
~~~sh skip
exit 5
~~~
`), Bench{Dir: dir})
	if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "one\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRun_Paste(t *testing.T) {
	r := &run{T: t, Bench: Bench{}, running: []*process{{output: &output{}}}}
	if _, err := r.running[0].output.Write([]byte("run\n  enter 77 show 10.0.0.1 # now\n")); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"enter 12345 show 10.0.0.1": "enter 77 show 10.0.0.1",
		"enter 12345 show 'a  b' c": "enter 77 show 'a  b' c",
	} {
		if got := r.printed(Command{Text: text}); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestMissing(t *testing.T) {
	for _, c := range []struct {
		text, want string
		missing    string
	}{
		{"a\nb\nc\n", "a\nc", ""},
		{"a\nb\nc\n", "c\na", "a"},
		{"a  b\n", " a b", ""},
		{"status 4711 ok\n", "status … ok", ""},
		{"status\n", "status 1", "status 1"},
		{"", "", ""},
	} {
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "\n")
		}
		if got := missing(c.text, want); got != c.missing {
			t.Errorf("%q in %q: %q is missing, want %q", c.want, c.text, got, c.missing)
		}
	}
}

func TestParse(t *testing.T) {
	got, err := Parse(page(t, "text\n~~~console exit=1 paste\n$ a \\\n  b\nout\n$ c\n~~~\n~~~sh skip\n# why\nd\n~~~\n"))
	want := []Command{
		{Line: 3, Text: "a \\\n  b", Want: []string{"out"}, Status: 1, Paste: true},
		{Line: 6, Text: "c", Status: 1, Paste: true},
		{Line: 10, Text: "d", Skip: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"~~~sh wrong\n~~~\n", "~~~sh exit=x\n~~~\n", "~~~sh\n", "~~~\n~~~\n", "~~~bash\n~~~\n", "~~~text\n$ a\n~~~\n"} {
		if got, err := Parse(page(t, bad)); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}
