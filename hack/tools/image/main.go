// Command image writes a container image for several architectures as one OCI archive,
// without a daemon and without a registry. `make image` calls it.
//
// Equal inputs give equal bytes: entries are sorted, owned by root, and carry the time
// that is given.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type options struct {
	out, name, version, revision string
	created                      time.Time
	// binaries and roots are by architecture; an architecture without a root gets the
	// binary alone.
	binaries, roots map[string]string
	order           []string
}

func main() {
	o := options{binaries: map[string]string{}, roots: map[string]string{}}
	flag.StringVar(&o.out, "out", "", "the archive to write")
	flag.StringVar(&o.name, "name", "", "name and tag of the image, for example sluice:v1.2.3")
	flag.StringVar(&o.version, "version", "", "version, for the labels")
	flag.StringVar(&o.revision, "revision", "", "commit, for the labels")
	flag.Func("created", "time of every entry, in seconds since 1970", func(text string) error {
		var seconds int64
		_, err := fmt.Sscan(text, &seconds)
		o.created = time.Unix(seconds, 0).UTC()
		return err
	})
	flag.Func("binary", "ARCH=FILE: the program for an architecture", o.perArch(o.binaries))
	flag.Func("root", "ARCH=DIR: the file system below the program", o.perArch(o.roots))
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (o *options) perArch(into map[string]string) func(string) error {
	return func(text string) error {
		arch, path, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q: expected ARCH=PATH", text)
		}
		if _, known := o.binaries[arch]; !known {
			o.order = append(o.order, arch)
		}
		into[arch] = path
		return nil
	}
}

func (o *options) run() error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range o.order {
		image, err := o.image(arch)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	// containerd keeps the image under the name in the first annotation. A pod's image is
	// looked up by its full name, in which the default registry has no "index.".
	full, err := name.NewTag(o.name)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          strings.TrimPrefix(full.Name(), "index."),
		"org.opencontainers.image.ref.name": full.TagStr(),
	})); err != nil {
		return err
	}
	file, err := os.Create(o.out)
	if err != nil {
		return err
	}
	if err := archive(file, dir, "", o.created); err != nil {
		return fmt.Errorf("write %s: %w", o.out, err)
	}
	return file.Close()
}

// image has one layer for the file system and one for the program, so that an upgrade
// transfers the program alone.
func (o *options) image(arch string) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var layers []v1.Layer
	if root := o.roots[arch]; root != "" {
		layer, err := layerOf(root, "", o.created)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	program, err := o.program(arch)
	if err != nil {
		return nil, err
	}
	layers = append(layers, program)
	image, err = mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: o.created}
	config.Config = v1.Config{
		Env:        []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: []string{"/usr/local/bin/sluice"},
		Cmd:        []string{"proxy"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "sluice",
			"org.opencontainers.image.version":  o.version,
			"org.opencontainers.image.revision": o.revision,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	for i := range config.History {
		config.History[i].Created = v1.Time{Time: o.created}
	}
	return mutate.ConfigFile(image, config)
}

// program is the layer of the binary, under both of its names.
func (o *options) program(arch string) (v1.Layer, error) {
	dir, err := os.MkdirTemp("", "image-program-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"usr/local/bin", "tmp", "run", "var/lib/kube-proxy"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	binary, err := os.ReadFile(o.binaries[arch])
	if err != nil {
		return nil, err
	}
	at := filepath.Join(dir, "usr/local/bin")
	if err := os.WriteFile(filepath.Join(at, "sluice"), binary, 0o755); err != nil {
		return nil, err
	}
	if err := os.Symlink("sluice", filepath.Join(at, "kube-proxy")); err != nil {
		return nil, err
	}
	return layerOf(dir, "", o.created)
}

// layerOf keeps the layer in memory, since dir may be gone when it is written.
func layerOf(dir, prefix string, created time.Time) (v1.Layer, error) {
	var all bytes.Buffer
	if err := archive(&all, dir, prefix, created); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(all.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// archive writes a folder in the order of its names.
func archive(to io.Writer, dir, prefix string, created time.Time) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		header.Name = filepath.ToSlash(filepath.Join(prefix, name))
		if info.IsDir() {
			header.Name += "/"
		}
		header.ModTime, header.AccessTime, header.ChangeTime = created, time.Time{}, time.Time{}
		header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
		header.Format = tar.FormatPAX
		if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(w, file)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
