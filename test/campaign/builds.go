package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// build is one build of the program.
type build struct {
	version string
	// rejects reports whether its renderer spoils the Service rejectedName.
	rejects bool
	binary  string
}

// builds are the first one, which serves every Service, and those that take turns after it.
func builds(reject bool) []build {
	return []build{{version: "campaign-0"}, {version: "campaign-1", rejects: reject}, {version: "campaign-2", rejects: reject}}
}

// spoiled replaces the Service method of a backend's renderer by the one in the text. The original
// method gets another name.
type spoiled struct {
	file, text string
}

// receiver is how both methods begin.
const receiver = "func (r *Renderer) Service("

// spoils adds something that the real kernel rejects to the objects of one Service: in nftables, a
// rule with an unknown expression; in iptables, one that names a missing accounting object.
var spoils = []spoiled{
	{"dataplane/nftables/render/renderer.go", `package render

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	objects := r.honest(ctx, view, facts)
	if view.Key.Name != "` + rejectedName + `" || len(objects) == 0 {
		return objects
	}
	body, rule := netlink.Nest(nil, 2)
	body, list := netlink.Nest(body, unix.NFTA_RULE_EXPRESSIONS)
	body, element := netlink.Nest(body, unix.NFTA_LIST_ELEM)
	body = netlink.AppendText(body, unix.NFTA_EXPR_NAME, "telepathy")
	body = netlink.End(netlink.End(netlink.End(body, element), list), rule)
	return append(objects, dataplane.Object{
		ID: dataplane.ID{Container: "chain", Name: "endpoint-unheard-of"}, Kind: dataplane.Owned, Body: string(body),
	})
}
`},
	{"dataplane/iptables/render/renderer.go", `package render

import (
	"context"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	objects := r.honest(ctx, view, facts)
	if view.Key.Name != "` + rejectedName + `" || len(objects) == 0 {
		return objects
	}
	return append(objects, dataplane.Object{
		ID: dataplane.ID{Container: "nat", Name: "KUBE-SVC-UNHEARDOF0000000"}, Kind: dataplane.Owned,
		Body: "-m nfacct --nfacct-name unheard-of -j RETURN",
	})
}
`},
}

// place says in which directory the program is.
func (b *build) place(dir string) {
	b.binary = filepath.Join(dir, "sluice-"+b.version)
	if b.rejects {
		b.binary += "-rejecting"
	}
}

// checkOut writes the source of a commit into a directory.
func checkOut(ctx context.Context, source, commit, dir string) (string, error) {
	of := filepath.Join(dir, "_"+commit)
	if err := os.MkdirAll(of, 0o700); err != nil {
		return "", err
	}
	archive := exec.CommandContext(ctx, "git", "archive", commit)
	archive.Dir = source
	packed, err := archive.Output()
	if err != nil {
		return "", fmt.Errorf("check out %s, which needs the history: %w", commit, err)
	}
	unpack := exec.CommandContext(ctx, "tar", "-x")
	unpack.Dir, unpack.Stdin = of, bytes.NewReader(packed)
	if printed, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", commit, err, printed)
	}
	return of, nil
}

// compile builds the program into a directory.
func (b *build) compile(ctx context.Context, source, dir string) error {
	began := time.Now()
	b.place(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	words := []string{"build", "-trimpath", "-ldflags", "-X main.version=" + b.version, "-o", b.binary}
	if b.rejects {
		// The go command does not look for packages in a directory of such a name.
		files := filepath.Join(dir, "_overlay")
		if err := os.MkdirAll(files, 0o700); err != nil {
			return err
		}
		overlay, err := overlay(source, files)
		if err != nil {
			return err
		}
		words = append(words, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(words, "./cmd/sluice")...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", b.version, err, printed)
	}
	fmt.Printf("built %s in %v\n", b.version, time.Since(began).Round(time.Second))
	return nil
}

// overlay writes the files that replace others in a build, and the list of them. The source does
// not change.
func overlay(source, dir string) (string, error) {
	replace := map[string]string{}
	for i, s := range spoils {
		file := filepath.Join(source, s.file)
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if bytes.Count(text, []byte(receiver)) != 1 {
			return "", fmt.Errorf("%s: want one %q, to be spoiled", s.file, receiver)
		}
		text = bytes.Replace(text, []byte(receiver), []byte("func (r *Renderer) honest("), 1)
		renamed, added := filepath.Join(dir, fmt.Sprintf("renamed-%d.go", i)), filepath.Join(dir, fmt.Sprintf("added-%d.go", i))
		if err := os.WriteFile(renamed, text, 0o600); err != nil {
			return "", err
		}
		if err := os.WriteFile(added, []byte(s.text), 0o600); err != nil {
			return "", err
		}
		replace[file] = renamed
		replace[filepath.Join(filepath.Dir(file), "campaign.go")] = added
	}
	list := filepath.Join(dir, "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, content, 0o600)
}
