// SPDX-License-Identifier: Apache-2.0

package kernel

// Turn is turn, for tests.
var Turn = turn
