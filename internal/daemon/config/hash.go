// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
)

// HashSize is the number of digits of Hash.
const HashSize = 12

// Hash identifies the effective configuration: nodes with the same file have the same hash. Comments, the order of
// fields and omitted defaults do not matter, nor do the name of the node and flags that override a file, which belong
// to one node.
func (c *Config) Hash() string {
	sum := sha256.New()
	add := func(prefix string, document any) {
		v := reflect.ValueOf(document).Elem()
		for _, path := range pathsOf(v.Type()) {
			if field := prefix + path; field != "hostnameOverride" && !c.flagged[field] {
				fmt.Fprintf(sum, "%s=%q\n", field, valueText(at(v, path)))
			}
		}
	}
	add("", c.document())
	add(sluicePrefix, &c.Sluice)
	return hex.EncodeToString(sum.Sum(nil))[:HashSize]
}
