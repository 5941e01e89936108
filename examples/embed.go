// Package examples holds sample manifests, for people to try and for the demo.
package examples

import "embed"

// Demo holds the files of the folder demo.
//
//go:embed demo/*.yaml
var Demo embed.FS
