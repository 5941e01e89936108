package iptables

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// TestKernelTextAndWriterAgree loads the same objects as one text and through the
// writer, each into a namespace of its own.
func TestKernelTextAndWriterAgree(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		objects := wholeNode(k.family, renderTrees(k.family))
		text, err := Text(objects)
		if err != nil {
			k.Fatal(err)
		}
		changes := make([]dataplane.Change, 0, len(objects))
		for i := range objects {
			changes = append(changes, dataplane.Change{ID: objects[i].ID, After: &objects[i]})
		}
		k.write(changes...)
		written := k.state()

		// With --noflush others keep their rules; without it there are none.
		for _, args := range [][]string{{"--noflush"}, nil} {
			namespace, err := netns.New("loaded")
			if err != nil {
				k.Fatal(err)
			}
			load := exec.Command(k.tool.programs.restore, args...)
			load.Stdin = strings.NewReader(text)
			if said, err := runIn(namespace, load); err != nil {
				k.Fatalf("%s %v: %v: %s", k.tool.programs.restore, args, err, said)
			}
			var loaded string
			if err := namespace.Do(func() error { loaded = k.state(); return nil }); err != nil {
				k.Fatal(err)
			}
			if loaded != written {
				k.Errorf("%v: the writer wrote\n%s\nand the text made\n%s", args, written, loaded)
			}
			if err := namespace.Close(); err != nil {
				k.Error(err)
			}
		}
	})
}

// runIn gives what a program says.
func runIn(namespace *netns.Namespace, cmd *exec.Cmd) (string, error) {
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := namespace.Run(cmd)
	return said.String(), err
}
