// SPDX-License-Identifier: Apache-2.0

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
	"slices"
	"strconv"
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
	out, static, name, version, revision string
	licenses                             string // the directory of hack/image/licenses
	command                              string // the arguments of the program, unless a pod has others
	created                              time.Time
	// binaries and roots are by architecture.
	binaries, roots map[string]string
	order           []string
}

func main() {
	o := options{binaries: map[string]string{}, roots: map[string]string{}}
	flag.StringVar(&o.out, "out", "", "the archive to write: the file systems and the programs")
	flag.StringVar(&o.static, "static", "", "the archive to write: the programs alone; its tag ends with -static")
	flag.StringVar(&o.name, "name", "", "name and tag of the image, for example sluice:v1.2.3")
	flag.StringVar(&o.version, "version", "", "version, for the labels")
	flag.StringVar(&o.revision, "revision", "", "commit, for the labels")
	flag.StringVar(&o.licenses, "licenses", "", "the directory with the licenses of the program and its modules")
	flag.StringVar(&o.command, "command", "proxy", "default argument of the program")
	flag.Func("created", "time of every entry, in seconds since 1970", func(text string) error {
		seconds, err := strconv.ParseInt(text, 10, 64)
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
		if !slices.Contains(o.order, arch) {
			o.order = append(o.order, arch)
		}
		into[arch] = path
		return nil
	}
}

// run writes both archives.
func (o *options) run() error {
	var whole, static v1.ImageIndex = newIndex(), newIndex()
	for _, arch := range o.order {
		if o.binaries[arch] == "" || o.roots[arch] == "" {
			return fmt.Errorf("%s: needs -binary and -root", arch)
		}
		root, err := layerOf(o.roots[arch], o.created)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		program, err := o.program(arch)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		// An upgrade transfers the last layer alone.
		if whole, err = o.add(whole, arch, root, program); err != nil {
			return err
		}
		if static, err = o.add(static, arch, program); err != nil {
			return err
		}
	}
	if err := o.write(whole, o.out, o.name); err != nil {
		return err
	}
	return o.write(static, o.static, o.name+"-static")
}

func newIndex() v1.ImageIndex { return mutate.IndexMediaType(empty.Index, types.OCIImageIndex) }

// add adds the image of one architecture.
func (o *options) add(index v1.ImageIndex, arch string, layers ...v1.Layer) (v1.ImageIndex, error) {
	image, err := o.image(arch, layers)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arch, err)
	}
	return mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}}), nil
}

// write writes an archive with one image, and prints its digest.
func (o *options) write(index v1.ImageIndex, out, tagged string) error {
	// containerd keeps the image under the name in the first annotation. A pod's image is
	// looked up by its full name, in which the default registry has no "index.".
	full, err := name.NewTag(tagged)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, newIndex())
	if err != nil {
		return err
	}
	index = mutate.Annotations(index, o.labels()).(v1.ImageIndex)
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          strings.TrimPrefix(full.Name(), "index."),
		"org.opencontainers.image.ref.name": full.TagStr(),
	})); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := archive(file, os.DirFS(dir), plain, o.created); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	if err := file.Close(); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err == nil {
		fmt.Printf("%s  %s  %s\n", tagged, digest, out)
	}
	return err
}

// image has the layers and the configuration.
func (o *options) image(arch string, layers []v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: o.created}
	config.Config = runConfig(o.command)
	config.Config.Labels = o.labels()
	for i := range config.History {
		config.History[i].Created = v1.Time{Time: o.created}
	}
	return mutate.ConfigFile(image, config)
}

// labels describe the image, in its configuration and in its index. There is no base.name: no image of a registry is below
// it.
func (o *options) labels() map[string]string {
	const repository = "https://github.com/sluice-proxy/sluice"
	return map[string]string{
		"org.opencontainers.image.title":         "sluice",
		"org.opencontainers.image.description":   "A replacement of kube-proxy",
		"org.opencontainers.image.version":       o.version,
		"org.opencontainers.image.revision":      o.revision,
		"org.opencontainers.image.created":       o.created.UTC().Format(time.RFC3339),
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.source":        repository,
		"org.opencontainers.image.documentation": repository + "/tree/" + o.revision + "/docs",
	}
}

// runConfig is how a container runs. The Dockerfile says the same.
func runConfig(command string) v1.Config {
	return v1.Config{
		Env:        []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: []string{"/usr/local/bin/sluice"},
		Cmd:        []string{command},
	}
}

// program is the layer of the binary, under both of its names, and of the licenses. The Dockerfile makes the same.
func (o *options) program(arch string) (v1.Layer, error) {
	dir, err := os.MkdirTemp("", "image-program-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for _, name := range folders {
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
	if err := os.CopyFS(filepath.Join(dir, licensesFolder), os.DirFS(o.licenses)); err != nil {
		return nil, fmt.Errorf("licenses: %w", err)
	}
	return layerOf(dir, o.created)
}

// licensesFolder is in both images, since both contain the program.
const licensesFolder = "usr/share/doc/sluice/licenses"

// folders are for the program, for what is mounted, and for temporary files.
var folders = []string{"usr/local/bin", "lib/modules", "run", "tmp", "var/lib/kube-proxy"}

// layerOf keeps the layer in memory, since dir may be gone when it is written.
func layerOf(dir string, created time.Time) (v1.Layer, error) {
	var all bytes.Buffer
	if err := archive(&all, os.DirFS(dir), usual, created); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(all.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// usual returns the mode of an entry as the usual umask makes it.
func usual(mode fs.FileMode) int64 {
	if mode.IsDir() || mode&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

// plain is the mode of the files of an OCI layout, none of which is a program.
func plain(mode fs.FileMode) int64 {
	if mode.IsDir() {
		return 0o755
	}
	return 0o644
}

// archive writes a directory in the order of its names.
func archive(to io.Writer, from fs.FS, mode func(fs.FileMode) int64, created time.Time) error {
	w := tar.NewWriter(to)
	err := fs.WalkDir(from, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = fs.ReadLink(from, path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		header.Name = path
		switch {
		case target != "":
			header.Mode = 0o777
		case info.IsDir():
			header.Name += "/"
			fallthrough
		default:
			header.Mode = mode(info.Mode())
		}
		header.ModTime, header.AccessTime, header.ChangeTime = created, time.Time{}, time.Time{}
		header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
		header.Format = tar.FormatPAX
		if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := from.Open(path)
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
