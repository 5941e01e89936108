// SPDX-License-Identifier: Apache-2.0

// Package examples holds sample manifests, for users to try. The demo embeds them.
package examples

import "embed"

// Demo has the files of the folder demo.
//
//go:embed demo/*.yaml
var Demo embed.FS
