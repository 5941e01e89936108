// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"strings"
)

// Serving lists the proxies of this network namespace: the holder of the lock, or the kube-proxies.
func Serving(lock *Holder) (who []string) {
	if lock != nil && !lock.ForeignProcess {
		return []string{lock.String()}
	}
	for _, p := range KubeProxies() {
		who = append(who, p.String())
	}
	return who
}

// TakeAlone takes the lock for an action that must not happen while a proxy is running, such as a cleanup. The error
// names the proxy, and says what to do.
func TakeAlone(force bool) (release func(), err error) {
	lock := NewLock()
	holder, err := lock.Try()
	switch {
	case force:
		return lock.Release, nil
	case err != nil:
		return nil, fmt.Errorf("%w; --force ignores that", err)
	}
	if who := Serving(holder); len(who) > 0 {
		lock.Release()
		return nil, fmt.Errorf("a proxy is running in this network namespace and would recreate its rules: %s; stop it first or use --force", strings.Join(who, "; "))
	}
	return lock.Release, nil
}
