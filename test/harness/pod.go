// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/sluice-proxy/sluice/test/harness/sandbox"
	"github.com/sluice-proxy/sluice/test/process"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// accountFolder is where a pod finds the credentials of its service account.
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// Kubelet puts the volumes of a node's pods in place and runs their containers, each confined as its
// securityContext says. All pods are in the host's network.
type Kubelet struct {
	T      testing.TB
	Server *APIServer
	Client kubernetes.Interface
	Node   *Host
	// Root stands for the host's root directory, and Logs is for one log file per start of a container.
	Root, Logs string
}

// Pod is a pod of a [Kubelet].
type Pod struct {
	k       *Kubelet
	spec    corev1.PodSpec
	ns      string
	volumes map[string]string // directories and files of this machine, by the volume's name
	account string
	starts  int
}

// NewPod prepares a pod of a template on node N1, with separate directories of the host.
func (c *Cluster) NewPod(namespace string, spec corev1.PodSpec) *Pod {
	c.t.Helper()
	k := &Kubelet{T: c.t, Server: c.Server, Client: c.Client, Node: c.N1, Root: c.t.TempDir(), Logs: c.logs}
	p, err := k.NewPod(c.t.Context(), namespace, spec)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// NewPod prepares a pod of a template: its ConfigMaps, a token of its service account, and the
// directories of the host.
func (k *Kubelet) NewPod(ctx context.Context, namespace string, spec corev1.PodSpec) (*Pod, error) {
	p := &Pod{k: k, spec: spec, ns: namespace, volumes: map[string]string{}, account: k.T.TempDir()}
	return p, errors.Join(p.prepareAccount(ctx), p.prepareVolumes(ctx))
}

func (p *Pod) prepareAccount(ctx context.Context) error {
	request := &authenticationv1.TokenRequest{}
	token, err := p.k.Client.CoreV1().ServiceAccounts(p.ns).
		CreateToken(ctx, p.spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token of service account %s: %w", p.spec.ServiceAccountName, err)
	}
	ca, err := os.ReadFile(filepath.Join(p.k.Server.dir, "credentials", "ca.crt"))
	return errors.Join(err,
		os.WriteFile(filepath.Join(p.account, "token"), []byte(token.Status.Token), 0o644),
		os.WriteFile(filepath.Join(p.account, "ca.crt"), ca, 0o644),
		os.WriteFile(filepath.Join(p.account, "namespace"), []byte(p.ns), 0o644))
}

func (p *Pod) prepareVolumes(ctx context.Context) error {
	for _, v := range p.spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			object, err := p.k.Client.CoreV1().ConfigMaps(p.ns).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			dir := p.k.T.TempDir()
			for key, text := range object.Data {
				if err := os.WriteFile(filepath.Join(dir, key), []byte(text), 0o644); err != nil {
					return err
				}
			}
			p.volumes[v.Name] = dir
		case v.DownwardAPI != nil:
			dir, err := p.annotations(ctx, v.DownwardAPI)
			if err != nil {
				return err
			}
			p.volumes[v.Name] = dir
		case v.HostPath != nil:
			path, err := hostPath(p.k.Root, v.HostPath)
			if err != nil {
				return err
			}
			p.volumes[v.Name] = path
		case isAccount(v.Projected):
			p.volumes[v.Name] = p.account
		default:
			return fmt.Errorf("volume %s: only ConfigMaps, annotations, paths of the host, and tokens are known here", v.Name)
		}
	}
	return nil
}

// annotations writes the annotations of the DaemonSet's template that a volume names.
func (p *Pod) annotations(ctx context.Context, v *corev1.DownwardAPIVolumeSource) (dir string, err error) {
	sets, err := p.k.Client.AppsV1().DaemonSets(p.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	dir = p.k.T.TempDir()
	for _, item := range v.Items {
		name := strings.TrimSuffix(strings.TrimPrefix(item.FieldRef.FieldPath, "metadata.annotations['"), "']")
		for i := range sets.Items {
			if text := sets.Items[i].Spec.Template.Annotations[name]; text != "" {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, item.Path), []byte(text), 0o644))
			}
		}
	}
	return dir, err
}

// isAccount reports whether a volume has what the kubelet mounts for a service account by itself.
func isAccount(v *corev1.ProjectedVolumeSource) bool {
	return v != nil && len(v.Sources) == 2 &&
		v.Sources[0].ServiceAccountToken != nil && v.Sources[0].ServiceAccountToken.Path == "token" &&
		v.Sources[1].ConfigMap != nil && v.Sources[1].ConfigMap.Name == "kube-root-ca.crt"
}

// hostPath makes what a volume names below a directory that stands for the host's root. The modules
// of the kernel are the machine's own.
func hostPath(host string, v *corev1.HostPathVolumeSource) (string, error) {
	if _, err := os.Stat(v.Path); err == nil && v.Path == "/lib/modules" {
		return v.Path, nil
	}
	path := filepath.Join(host, v.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if v.Type != nil && *v.Type == corev1.HostPathFileOrCreate {
		return path, os.WriteFile(path, nil, 0o600)
	}
	return path, os.MkdirAll(path, 0o755)
}

// Start runs the init containers, one after the other, each of which must end with status 0, and
// starts the only container. It is killed at the end of the test.
func (p *Pod) Start() (*Proxy, error) {
	p.k.T.Helper()
	p.starts++
	for _, container := range p.spec.InitContainers {
		if err := p.Run(container); err != nil {
			return nil, err
		}
	}
	if len(p.spec.Containers) != 1 {
		return nil, fmt.Errorf("%d containers, want one", len(p.spec.Containers))
	}
	process, err := p.run(p.spec.Containers[0])
	if err != nil {
		return nil, err
	}
	p.k.T.Cleanup(func() { end(p.k.T, process) })
	return &Proxy{process}, nil
}

// Run runs a container with the volumes of the pod to its end, which must be status 0.
func (p *Pod) Run(container corev1.Container) error {
	p.k.T.Helper()
	process, err := p.run(container)
	if err != nil {
		return err
	}
	if status := process.ExitStatus(); status != 0 {
		return fmt.Errorf("container %s: exit status %d: %s", container.Name, status, process.Tail(shownMax))
	}
	return nil
}

func (p *Pod) run(container corev1.Container) (*process.Daemon, error) {
	runtime, err := containerBinary()
	if err != nil {
		return nil, err
	}
	spec, err := p.confined(container)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", container.Name, err)
	}
	file := filepath.Join(p.k.T.TempDir(), container.Name+".json")
	if err := spec.Write(file); err != nil {
		return nil, err
	}
	log := filepath.Join(p.k.Logs, fmt.Sprintf("pod-%d-%s.log", p.starts, container.Name))
	return process.StartDaemon(p.k.Node.Namespace, log, exec.Command(runtime, file))
}

// confined translates a container for the program that runs it.
func (p *Pod) confined(container corev1.Container) (sandbox.Spec, error) {
	// What the image of `make image` has.
	s := sandbox.Spec{
		Root:   p.k.T.TempDir(),
		Env:    []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Mounts: []sandbox.Mount{{Source: testenv.Program(p.k.T), Target: "/opt/sluice/sluice", ReadOnly: true}},
	}
	command := container.Command
	if len(command) == 0 {
		command = []string{"/opt/sluice/sluice"}
	}
	values := map[string]string{}
	for _, v := range container.Env {
		values[v.Name] = v.Value
		if v.ValueFrom != nil {
			if v.ValueFrom.FieldRef == nil || v.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
				return sandbox.Spec{}, fmt.Errorf("environment variable %s: only spec.nodeName is known here", v.Name)
			}
			values[v.Name] = p.k.Node.Name()
		}
		s.Env = append(s.Env, v.Name+"="+values[v.Name])
	}
	for _, word := range append(command, container.Args...) {
		for name, value := range values {
			word = strings.ReplaceAll(word, "$("+name+")", value)
		}
		s.Args = append(s.Args, word)
	}
	for _, m := range container.VolumeMounts {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: p.volumes[m.Name], Target: m.MountPath, ReadOnly: m.ReadOnly})
	}
	if automount := p.spec.AutomountServiceAccountToken; automount == nil || *automount {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: p.account, Target: accountFolder, ReadOnly: true})
	}
	return s, privileges(&s, container.SecurityContext)
}

// privileges takes over a securityContext, which must leave nothing to defaults.
func privileges(s *sandbox.Spec, from *corev1.SecurityContext) error {
	s.Privileged = from.Privileged != nil && *from.Privileged
	s.ReadOnlyRoot = from.ReadOnlyRootFilesystem != nil && *from.ReadOnlyRootFilesystem
	s.NoNewPrivileges = from.AllowPrivilegeEscalation != nil && !*from.AllowPrivilegeEscalation
	if s.Privileged {
		return nil
	}
	if from.Capabilities == nil || len(from.Capabilities.Drop) != 1 || from.Capabilities.Drop[0] != "ALL" {
		return errors.New("a container that is not privileged has to drop all capabilities")
	}
	for _, name := range from.Capabilities.Add {
		s.Capabilities = append(s.Capabilities, string(name))
	}
	return nil
}

// Probe asks what the kubelet would ask.
func (p *Pod) Probe(ctx context.Context, probe *corev1.Probe) error {
	get := probe.HTTPGet
	page, err := p.k.Node.Get(ctx, "http://"+net.JoinHostPort(get.Host, get.Port.String())+get.Path)
	if err == nil && (page.Status < http.StatusOK || page.Status >= http.StatusBadRequest) {
		err = fmt.Errorf("status %d: %s", page.Status, page.Body)
	}
	return err
}

// ChangeConfig replaces a text in the file of a mounted ConfigMap.
func (p *Pod) ChangeConfig(volume, key, from, to string) error {
	path := filepath.Join(p.volumes[volume], key)
	text, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(text), from) {
		err = fmt.Errorf("%s does not contain %q", path, from)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o644)
}

// EditConfig changes a configuration file in YAML, given as the document that comes first.
func EditConfig(text string, change func(fields map[string]any)) (string, error) {
	first, rest, _ := strings.Cut(text, "\n---\n")
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(first), &fields); err != nil {
		return "", err
	}
	change(fields)
	changed, err := yaml.Marshal(fields)
	if rest != "" {
		rest = "---\n" + rest
	}
	return string(changed) + rest, err
}
