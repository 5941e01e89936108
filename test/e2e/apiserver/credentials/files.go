// SPDX-License-Identifier: Apache-2.0

// Package credentials makes and keeps what an API server and its clients need to trust each other.
// The command apiserver calls it. It owns an authority, a serving certificate, a key for service
// account tokens, and one token per user.
//
// Everything but the serving certificate is made once per directory and read back afterwards, so
// clients that were given a kubeconfig keep working across a restart of the server.
package credentials

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Files names the files of one server, all in one directory.
type Files struct {
	// CA is the certificate with which clients verify the server.
	CA string
	// ServingCert and ServingKey are the server's. Each start makes new ones, because their
	// addresses may have changed.
	ServingCert, ServingKey string
	// ServiceAccountKey signs service account tokens.
	ServiceAccountKey string
	// Tokens lists users and their tokens in the form of kube-apiserver --token-auth-file.
	Tokens string
	// AdminKubeconfig belongs to a user with every right, ProxyKubeconfig to one with kube-proxy's
	// rights.
	AdminKubeconfig, ProxyKubeconfig string
	// NodeKubeconfigs belong to the kubelets of the named nodes, ControllersKubeconfig and
	// SchedulerKubeconfig to the rest of that control plane.
	NodeKubeconfigs                            []string
	ControllersKubeconfig, SchedulerKubeconfig string
}

// user is one line of the token file.
type user struct {
	name, group, kubeconfig string
}

// Prepare makes sure that every file exists in dir, for a server reached at the address server.
// Those of the nodes, the controller manager and the scheduler exist if there are nodes. Certificates
// are also valid for the further addresses.
func Prepare(dir string, server netip.AddrPort, nodes []string, further ...netip.Addr) (Files, error) {
	f := Files{
		CA:                    filepath.Join(dir, "ca.crt"),
		ServingCert:           filepath.Join(dir, "serving.crt"),
		ServingKey:            filepath.Join(dir, "serving.key"),
		ServiceAccountKey:     filepath.Join(dir, "service-account.key"),
		Tokens:                filepath.Join(dir, "tokens.csv"),
		AdminKubeconfig:       filepath.Join(dir, "admin.kubeconfig"),
		ProxyKubeconfig:       filepath.Join(dir, "proxy.kubeconfig"),
		ControllersKubeconfig: filepath.Join(dir, "controllers.kubeconfig"),
		SchedulerKubeconfig:   filepath.Join(dir, "scheduler.kubeconfig"),
	}
	for _, node := range nodes {
		f.NodeKubeconfigs = append(f.NodeKubeconfigs, filepath.Join(dir, "node-"+node+".kubeconfig"))
	}
	if err := f.prepare(dir, server, nodes, further); err != nil {
		return Files{}, fmt.Errorf("credentials in %s: %w", dir, err)
	}
	return f, nil
}

func (f Files) prepare(dir string, server netip.AddrPort, nodes []string, further []netip.Addr) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := openAuthority(f.CA, filepath.Join(dir, "ca.key"))
	if err != nil {
		return err
	}
	if err := ca.issue(f.ServingCert, f.ServingKey, append(further, server.Addr())); err != nil {
		return err
	}
	if _, err := openKey(f.ServiceAccountKey); err != nil {
		return err
	}
	users := []user{
		{"e2e-admin", "system:masters", f.AdminKubeconfig},
		// The API server's built-in role binding system:node-proxier names this user.
		{"system:kube-proxy", "", f.ProxyKubeconfig},
	}
	for i, node := range nodes {
		users = append(users, user{"system:node:" + node, "system:nodes", f.NodeKubeconfigs[i]})
	}
	if len(nodes) > 0 {
		users = append(users,
			// These two are named by built-in role bindings, too.
			user{"system:kube-controller-manager", "", f.ControllersKubeconfig},
			user{"system:kube-scheduler", "", f.SchedulerKubeconfig})
	}
	tokens, err := openTokens(f.Tokens, users)
	if err != nil {
		return err
	}
	for i, u := range users {
		if err := writeKubeconfig(u.kubeconfig, server, f.CA, u.name, tokens[i]); err != nil {
			return err
		}
	}
	return nil
}

// keep returns the content of a file. If the file does not exist, keep makes it with content from
// fresh. It appears whole or not at all, so a killed process leaves no half-written file for a
// later start.
func keep(path string, fresh func() ([]byte, error)) ([]byte, error) {
	content, err := os.ReadFile(path)
	if !os.IsNotExist(err) {
		return content, err
	}
	if content, err = fresh(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return content, replace(path, content)
}

// replace puts a file in place in one step, readable by its owner only.
func replace(path string, content []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// writeKubeconfig writes a file that includes the authority, so it can be copied.
func writeKubeconfig(path string, server netip.AddrPort, caFile, userName, token string) error {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return err
	}
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"e2e": {Server: "https://" + server.String(), CertificateAuthorityData: ca},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{userName: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"e2e": {Cluster: "e2e", AuthInfo: userName}},
		CurrentContext: "e2e",
	})
	if err != nil {
		return err
	}
	return replace(path, content)
}

// openTokens reads the token file, or makes it, and returns the token of each user in order.
func openTokens(path string, users []user) ([]string, error) {
	content, err := keep(path, func() ([]byte, error) {
		var lines strings.Builder
		for _, u := range users {
			// token,user,uid,"groups"; an empty list of groups must be left out
			fmt.Fprintf(&lines, "%s,%s,%s", rand.Text(), u.name, u.name)
			if u.group != "" {
				fmt.Fprintf(&lines, ",%q", u.group)
			}
			lines.WriteByte('\n')
		}
		return []byte(lines.String()), nil
	})
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if len(lines) != len(users) {
		return nil, fmt.Errorf("%s has %d lines for %d users; remove the folder to start over", path, len(lines), len(users))
	}
	tokens := make([]string, len(users))
	for i, line := range lines {
		token, rest, _ := strings.Cut(line, ",")
		if !strings.HasPrefix(rest, users[i].name+",") {
			return nil, fmt.Errorf("%s: line %d is not for user %s; remove the folder to start over", path, i+1, users[i].name)
		}
		tokens[i] = token
	}
	return tokens, nil
}
