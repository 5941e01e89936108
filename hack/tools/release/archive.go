// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// archive is what an OCI archive of hack/tools/image contains: an image, and its parts by architecture.
type archive struct {
	name, digest string
	parts        map[string]string // digests without "sha256:"
}

// blobMax is more than an index of an image has, and less than its layers.
const blobMax = 1 << 20

func readArchive(path string) (*archive, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	small := map[string][]byte{}
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if header.Size < blobMax {
			if small[header.Name], err = io.ReadAll(r); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	var top, index v1.IndexManifest
	if err := json.Unmarshal(small["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		return nil, fmt.Errorf("%s: index.json must name one image, and names %d: %v", path, len(top.Manifests), err)
	}
	image := top.Manifests[0]
	blob := small["blobs/sha256/"+image.Digest.Hex]
	if sum, _, err := v1.SHA256(strings.NewReader(string(blob))); err != nil || sum != image.Digest {
		return nil, fmt.Errorf("%s: the index of the image is not %s", path, image.Digest)
	}
	if err := json.Unmarshal(blob, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a := &archive{name: image.Annotations["io.containerd.image.name"], digest: image.Digest.Hex, parts: map[string]string{}}
	for _, part := range index.Manifests {
		a.parts[part.Platform.Architecture] = part.Digest.Hex
	}
	return a, nil
}
