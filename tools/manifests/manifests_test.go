// Package manifests tests deploy/kubernetes and deploy/compose.yaml: they are decoded strictly, and what they start is started, as
// processes on a copy of this system, with the commands, users, environments and mounts that the files name.
package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const deploy = "../../deploy/"

// user is the user of the image and its group.
const user = 65532

var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	if program = os.Getenv("FLIGHTD_TEST_BINARY"); program == "" {
		program = filepath.Join(dir, "flightd")
		build := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/flightd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v: %s", err, out))
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// objects decodes a file of manifests: an unknown or duplicate field is an error.
func objects(t *testing.T, name string, replace ...string) (found struct {
	job    batchv1.Job
	set    appsv1.StatefulSet
	claim  corev1.PersistentVolumeClaim
	policy networkingv1.NetworkPolicy
}) {
	t.Helper()
	text, err := os.ReadFile(deploy + "kubernetes/" + name)
	require.NoError(t, err)
	for _, document := range strings.Split(strings.NewReplacer(replace...).Replace(string(text)), "\n---\n") {
		kind := regexp.MustCompile(`(?m)^apiVersion: (.*)\nkind: (.*)$`).FindStringSubmatch(document)
		require.NotNil(t, kind, document)
		into, known := map[string]any{
			"v1 Service": new(corev1.Service), "v1 PersistentVolumeClaim": &found.claim, "batch/v1 Job": &found.job, "apps/v1 StatefulSet": &found.set,
			"policy/v1 PodDisruptionBudget": new(policyv1.PodDisruptionBudget), "networking.k8s.io/v1 NetworkPolicy": &found.policy,
		}[kind[1]+" "+kind[2]]
		require.True(t, known, "%s: %v", name, kind)
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), into), "%s: %s", name, kind[2])
	}
	return found
}

// TestManifests: the files fit each other, and the names that only a running cluster would compare.
func TestManifests(t *testing.T) {
	for set, job := range map[string]string{"one.yaml": "init.yaml", "three.yaml": "found.yaml"} {
		s, j := objects(t, set), objects(t, job)
		require.Equal(t, s.set.Spec.Selector.MatchLabels, s.set.Spec.Template.Labels)
		template := s.set.Spec.VolumeClaimTemplates[0]
		require.Equal(t, template.Name+"-"+s.set.Name+"-0", j.claim.Name, "the claim that the StatefulSet adopts")
		require.Equal(t, template.Spec, j.claim.Spec)
		require.Equal(t, s.set.Spec.Template.Spec.SecurityContext, j.job.Spec.Template.Spec.SecurityContext)
		require.NotContains(t, s.set.Spec.Template.Spec.Containers[0].Args, "--init", "a restart must not make a ledger")
	}
}

// machine has the volumes and the addresses of a test.
type machine struct {
	t     *testing.T
	dir   string
	hosts string
	image map[string]string // environment of the image
}

func newMachine(t *testing.T) *machine {
	if os.Getuid() != 0 {
		t.Skip("needs root: the processes run in mount namespaces, as another user")
	}
	dockerfile, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	m := &machine{t: t, dir: t.TempDir(), image: make(map[string]string)}
	for _, line := range regexp.MustCompile(`(?m)^ENV (.*)$`).FindAllStringSubmatch(string(dockerfile), -1) {
		for _, setting := range strings.Fields(line[1]) {
			name, value, _ := strings.Cut(setting, "=")
			m.image[name] = value
		}
	}
	require.Contains(t, m.image, "FLIGHTD_DATA")
	return m
}

// volume returns the directory of a claim, or of a Secret with the files of from, as the kubelet mounts it for fsGroup.
func (m *machine) volume(name string, from ...string) string {
	dir := filepath.Join(m.dir, name)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	require.NoError(m.t, os.Mkdir(dir, 0o700))
	for _, path := range from {
		data, err := os.ReadFile(path)
		require.NoError(m.t, err)
		file := filepath.Join(dir, filepath.Base(path))
		require.NoError(m.t, os.WriteFile(file, data, 0o600))
		require.NoError(m.t, os.Chown(file, 0, user))
		require.NoError(m.t, os.Chmod(file, 0o440))
	}
	require.NoError(m.t, os.Chown(dir, 0, user))
	require.NoError(m.t, os.Chmod(dir, 0o775|os.ModeSetgid))
	return dir
}

// certificate returns the Secret flightd-tls.
func (m *machine) certificate() string {
	made := filepath.Join(m.dir, "admin")
	m.flightd("cert", "init", made, "--host", "flightd")
	require.NoError(m.t, os.Rename(made+"/server.crt", made+"/tls.crt"))
	require.NoError(m.t, os.Rename(made+"/server.key", made+"/tls.key"))
	return m.volume("tls", made+"/tls.crt", made+"/tls.key")
}

// container is what a manifest or a compose file starts.
type container struct {
	ip     string            // in the place of 0.0.0.0 and of localhost
	env    map[string]string // besides that of the image
	mounts map[string]string // directories by their place
	args   []string
}

// of takes command, environment and mounts out of a manifest. volumes has the directories of its volumes.
func of(t *testing.T, spec corev1.PodSpec, ip string, configMap string, volumes map[string]string) container {
	t.Helper()
	require.EqualValues(t, user, *spec.SecurityContext.RunAsUser)
	c, from := container{ip: ip, env: make(map[string]string), mounts: make(map[string]string)}, spec.Containers[0]
	for _, e := range from.Env {
		switch ref := e.ValueFrom; {
		case ref == nil:
			c.env[e.Name] = e.Value
		case configMap != "":
			c.env[e.Name] = configMap
		default:
			require.NotNil(t, ref.ConfigMapKeyRef.Optional, "the pod waits for the ConfigMap")
		}
	}
	for _, mount := range from.VolumeMounts {
		require.Contains(t, volumes, mount.Name)
		c.mounts[mount.MountPath] = volumes[mount.Name]
	}
	if c.args = append(from.Command, from.Args...); len(from.Command) == 0 {
		c.args = append([]string{"/flightd"}, from.Args...)
	}
	return c
}

// start starts the container: its root is a copy of this system in memory, read-only, with the program, the mounts, and a hosts
// file in the place of DNS.
func (m *machine) start(c container) (_ *exec.Cmd, output *bytes.Buffer) {
	m.t.Helper()
	script := `set -eu; root=$1; shift
		mount -t tmpfs none "$root"; mkdir "$root/upper" "$root/work" "$root/root"
		mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" none "$root/root"; root=$root/root
		cp "$PROGRAM" "$root/flightd"; printf %s "$HOSTS" >"$root/etc/hosts"; mount --rbind /dev "$root/dev"
		while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done; shift
		mount -o remount,ro "$root"
		exec chroot --userspec=65532:65532 --groups=65532 "$root" env -i "$@"`
	root, err := os.MkdirTemp(m.dir, "root")
	require.NoError(m.t, err)
	args := []string{"-c", script, "sh", root}
	for place, dir := range c.mounts {
		args = append(args, dir, place)
	}
	args = append(args, "--", "PATH="+os.Getenv("PATH"))
	env := maps.Clone(m.image)
	maps.Copy(env, c.env)
	for name, value := range env {
		args = append(args, name+"="+strings.ReplaceAll(value, "0.0.0.0", c.ip))
	}
	cmd := exec.Command("sh", append(args, c.args...)...)
	cmd.Env = append(os.Environ(), "PROGRAM="+program, "HOSTS="+c.ip+" localhost\n"+m.hosts)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	output = new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = output, output
	require.NoError(m.t, cmd.Start())
	m.t.Cleanup(func() { stop(cmd) })
	return cmd, output
}

func stop(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// run runs the container to its end, and returns its exit code and its output.
func (m *machine) run(c container) (code int, output string) {
	m.t.Helper()
	cmd, out := m.start(c)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String()
}

// awaitReady waits until the readiness probe succeeds.
func (m *machine) awaitReady(ip string, log *bytes.Buffer) {
	m.t.Helper()
	probe := http.Client{Timeout: time.Second}
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer, err := probe.Get("http://" + ip + ":9464/readyz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		require.True(m.t, time.Now().Before(until), "%s is not ready: %v\n%s", ip, err, log)
	}
}

// flightd runs a command of an administrator, who has the program and a directory.
func (m *machine) flightd(args ...string) string {
	m.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = m.dir
	out, err := cmd.Output()
	require.NoError(m.t, err, "flightd %v", args)
	return string(out)
}

// firstNetwork is random, for other runs on this machine; networks counts those that the tests of this one have.
var (
	firstNetwork = rand.Uint32()
	networks     atomic.Uint32
)

// network returns the first three bytes of addresses that no other test has.
func network() string { return fmt.Sprintf("127.78.%d.", (firstNetwork+networks.Add(1))%256) }

func TestOne(t *testing.T) {
	t.Parallel()
	m, ip := newMachine(t), network()+"1"
	volumes := map[string]string{"data": m.volume("data"), "tls": m.certificate()}
	one, job := objects(t, "one.yaml").set.Spec.Template.Spec, of(t, objects(t, "init.yaml").job.Spec.Template.Spec, ip, "", volumes)

	code, says := m.run(of(t, one, ip, "00000000-0000-4000-8000-000000000000", volumes))
	require.Equal(t, 78, code, "an empty volume: %s", says)
	require.Contains(t, says, "does not exist")
	code, says = m.run(job)
	require.Zero(t, code, says)
	deployment := regexp.MustCompile(`(?m)^[0-9a-f-]{36}$`).FindString(says)
	require.NotEmpty(t, deployment, says)
	code, says = m.run(job)
	require.NotZero(t, code, "a second init: %s", says)
	code, says = m.run(of(t, one, ip, "00000000-0000-4000-8000-000000000000", volumes))
	require.Equal(t, 78, code, "the ledger of another deployment: %s", says)

	pod := of(t, one, ip, deployment, volumes)
	_, log := m.start(pod)
	m.awaitReady(ip, log)
	pod.args = []string{"/flightd", "token", "create", "billing", "--namespace", "billing"} // kubectl exec
	code, says = m.run(pod)
	require.Zero(t, code, says)
	require.Contains(t, says, "fltd_")
}

func TestThree(t *testing.T) {
	t.Parallel()
	m, prefix := newMachine(t), network()
	three := objects(t, "three.yaml").set
	require.EqualValues(t, 3, *three.Spec.Replicas)
	found := []string{"cluster", "found", "--out", "cluster", "--first-token-file", "first-token"}
	for n := range 3 {
		name := fmt.Sprintf("%s-%d", three.Name, n)
		host := name + "." + three.Spec.ServiceName + ".flightd.svc.cluster.local"
		m.hosts += fmt.Sprintf("%s%d %s\n", prefix, n+1, host)
		found = append(found, "--node", name+"="+host+":7430")
	}
	m.flightd(found...)
	tls := m.certificate()
	pod := func(n int) container {
		return of(t, three.Spec.Template.Spec, fmt.Sprint(prefix, n+1), "", map[string]string{"data": m.volume(fmt.Sprint("data-", n)), "tls": tls})
	}
	job := func(n int) container {
		name := fmt.Sprint("flightd-", n)
		files, err := filepath.Glob(filepath.Join(m.dir, "cluster", name, "*"))
		require.NoError(t, err)
		founding := m.volume("founding-"+name, files...)
		return of(t, objects(t, "found.yaml", "flightd-0", name).job.Spec.Template.Spec, "", "", map[string]string{"data": m.volume(fmt.Sprint("data-", n)), "founding": founding})
	}
	refused := func(why string) {
		for n := range 3 {
			code, says := m.run(pod(n))
			require.Equal(t, 78, code, "%s, pod %d: %s", why, n, says)
			require.Contains(t, says, "founding.json is missing")
			written, err := filepath.Glob(filepath.Join(pod(n).mounts["/var/lib/flightd"], "data/ledger/[^I]*")) // all but INODE, the lock
			require.NoError(t, err)
			require.Empty(t, written, why)
		}
	}
	serve := func() (stopAll func()) {
		var pods []*exec.Cmd
		var logs []*bytes.Buffer
		for n := range 3 {
			cmd, log := m.start(pod(n))
			pods, logs = append(pods, cmd), append(logs, log)
		}
		for n, log := range logs {
			m.awaitReady(pod(n).ip, log)
		}
		return func() { // all at once
			for _, cmd := range pods {
				stop(cmd)
			}
		}
	}
	refused("before the founding")
	for n := range 3 {
		code, says := m.run(job(n))
		require.Zero(t, code, says)
		code, says = m.run(job(n))
		require.NotZero(t, code, "a second founding: %s", says)
	}
	stopAll := serve()
	token, err := os.ReadFile(filepath.Join(m.dir, "first-token"))
	require.NoError(t, err)
	admin := func(n int, args ...string) (code int, says string) {
		c := pod(n)
		c.args = append([]string{"FLIGHTD_ADDR=https://localhost:7420", "FLIGHTD_CA_FILE=/tls/tls.crt", "FLIGHTD_TOKEN=" + strings.TrimSpace(string(token)), "FLIGHTD_NAMESPACE=default", "XDG_STATE_HOME=/var/lib/flightd/state", "/flightd"}, args...)
		return m.run(c)
	}
	code, says := admin(0, "exec", "--key", "pay-1", "--", "echo", "paid")
	require.Zero(t, code, says)
	code, says = admin(2, "exec", "--key", "pay-1", "--", "echo", "paid")
	require.Zero(t, code, says)
	require.Contains(t, says, "nothing was run")
	stopAll()

	for n := range 3 {
		volume := m.volume(fmt.Sprint("data-", n))
		require.NoError(t, os.Rename(volume, volume+".lost"))
	}
	refused("all volumes are lost")
	for n := range 3 {
		volume := m.volume(fmt.Sprint("data-", n))
		require.NoError(t, os.RemoveAll(volume))
		require.NoError(t, os.Rename(volume+".lost", volume))
	}
	serve()
	code, says = admin(1, "exec", "--key", "pay-1", "--", "echo", "paid")
	require.Zero(t, code, says)
	require.Contains(t, says, "nothing was run")
}

// compose is what deploy/compose.yaml uses of the format; any other field is an error.
type compose struct {
	Name     string
	Services map[string]struct {
		Image, Restart  string
		Command         []string
		StopGracePeriod string `json:"stop_grace_period"`
		Profiles        []string
		Ports, Volumes  []string
		Environment     map[string]string
		MemLimit        string   `json:"mem_limit"`
		ReadOnly        bool     `json:"read_only"`
		CapDrop         []string `json:"cap_drop"`
		SecurityOpt     []string `json:"security_opt"`
	}
	Volumes map[string]*struct{}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	m, ip := newMachine(t), network()+"1"
	text, err := os.ReadFile(deploy + "compose.yaml")
	require.NoError(t, err)
	var file compose
	require.NoError(t, yaml.UnmarshalStrict(text, &file))
	m.flightd("cert", "init", "tls", "--host", "flightd.example.com")
	require.NoError(t, os.Chown(filepath.Join(m.dir, "tls/server.key"), user, user))
	require.NoError(t, os.Chmod(filepath.Join(m.dir, "tls"), 0o755))
	service := func(name string) container {
		s := file.Services[name]
		c := container{ip: ip, env: s.Environment, mounts: make(map[string]string), args: append([]string{"/flightd"}, s.Command...)}
		for _, volume := range s.Volumes {
			parts := strings.Split(volume, ":")
			c.mounts[parts[1]] = m.volume(parts[0])
			if parts[0] == "ledger" { // a new volume has the user of the image's directory
				require.NoError(t, os.Chown(m.volume("ledger"), user, user))
			}
		}
		return c
	}
	code, says := m.run(service("flightd"))
	require.Equal(t, 78, code, "an empty volume: %s", says)
	code, says = m.run(service("init"))
	require.Zero(t, code, says)
	require.NotEmpty(t, file.Services["init"].Profiles, "up must not start it")
	_, log := m.start(service("flightd"))
	m.awaitReady(ip, log)
	code, says = m.run(service("init"))
	require.NotZero(t, code, "a second init: %s", says)
}
