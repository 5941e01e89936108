// SPDX-License-Identifier: Apache-2.0

// Package ui tests the pages of the metrics address and of kubectl sluice ui in a real browser, Debian's Chromium without a
// window, against the real program in network and process namespaces of the test. It is a module
// of its own, because the library that drives the browser is no part of the product.
//
//	make test-ui
//
// With SLUICE_UI_IMAGES it writes the screenshots of docs/kubectl-sluice.md to that directory.
package ui
