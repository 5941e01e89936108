// SPDX-License-Identifier: Apache-2.0

// Package deploy tests what stands in the directory deploy: that install.yaml is what the base gives,
// that the rules alert as they should, and that every query asks for what Sluice exports. `make
// test-deploy` runs it. What an API server and a node make of the manifests is tested in test/e2e.
package deploy
