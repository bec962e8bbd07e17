// Every cure that `doctor` and `netcheck` print, with what proves it: a trial on a machine with that fault, after which the
// finding is gone, or the reason why none is needed. A cure that is added or changed without either fails here.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { parseSync, Visitor } from "oxc-parser";
import { allKinds, type Kind } from "../../../src/node/health/findings.ts";

const source = join(import.meta.dir, "../../../src");
const tests = join(import.meta.dir, "../..");

/** A file of tests and a text in it, by which the trial is found; or why no trial is needed. */
type Proof = readonly [file: string, trial: string] | string;

const machine = (trial: string): Proof => ["support/doctor-cures.ts", `name: "${trial}"`];
const endingCertificate: Proof = [
  "e2e/renewal.test.ts",
  "one that ends soon, and one that has expired, is renewed by the line that doctor prints",
];
const booted = (trial: string): Proof => ["e2e/systemd-cures.test.ts", trial];

const positions = new Map([
  ["fail", 1],
  ["warn", 1],
]);

/** By file, then by the function and the text of the cure in the source. */
const proofs: Record<string, Record<string, Proof>> = {
  "daemon/asking/doctor-checks.ts": {
    "daemonFinding: daemonRestartHint(report.daemon.pid)":
      "advice: it names the process that hangs; daemon/asking/status-report.test.ts",
    "daemonFinding: start": booted("ends it in desktop mode: the daemon is stopped and disabled"),
  },
  "node/doctor/check.ts": {
    "runCheck: deniedToRoot": "advice: what denies it belongs to the system, not to the agent",
  },
  "node/doctor/control-plane.ts": {
    'examineControlPlane: "Check the proxy in front of it"':
      "advice: what removes a header is not on this machine",
    "examineControlPlane: setClock":
      "advice: a container of the tests has the clock of its host; clocks that differ and agree again: e2e/clock-jump.test.ts",
    "unready: tellOperator": "advice: nothing on this machine ends it",
  },
  "node/doctor/engine.ts": {
    "examineEngineInUse: next": [
      "e2e/engine-in-use.test.ts",
      "after a restart it runs, and only then is reported",
    ],
    "deletedEngine: cure": booted(
      "is to install the engine that runs, where its file is gone and an older one is there",
    ),
    'examineOffloads: "Ask the administrator of this machine\'s host"':
      "advice: the host of a container sets it",
    "examineOffloads: `${run} overlay update`": [
      "e2e/engine-in-use.test.ts",
      "an update restarts once with the new engine",
    ],
    'examineOffloads: "Update the kernel or the engine: both are then tried again"':
      "advice: there may be no newer one",
    "examineOffloads: `${run} restart ${quoteWord(organization.slug)}`": booted(
      "is to install the engine that runs, where its file is gone and an older one is there",
    ),
  },
  "node/doctor/machine.ts": {
    'examineCapability: "In a container: pass --cap-add NET_ADMIN"':
      "advice: a container gets it when it is made",
    "examineDisk: remedy": ["e2e/daemon-disk.test.ts", "nearly full: status and doctor say so"],
    "examineEngine: `${run} overlay install`": booted(
      "is to install the engine that runs, where its file is gone and an older one is there",
    ),
    "examineEngine: `${run} overlay update`": [
      "e2e/engine-in-use.test.ts",
      "an update restarts once with the new engine",
    ],
    'examineKeyring: "Unlock the keyring"': "advice: a person types the password",
    "examineRights: asRoot": ["e2e/doctor.test.ts", "as another user nothing that this user cannot see"],
    'examineTun: "modprobe tun # in a container: pass --device /dev/net/tun"':
      "no trial: machines of the tests share the kernel of their host, which has the module in it, and no kernel of their own",
    "examineTun: `${run} install-tap`":
      "no trial: it downloads the driver of Windows from its maker, and Wine loads no driver; its refusals: e2e/windows.test.ts",
    "examineTun: deniedToRoot": "advice: as in check.ts",
    'examineUnits: cures.join(" && ") || serviceCommand(system)': machine(
      "a program that others can replace",
    ),
    "examineUnits: serviceCommand(system)": machine("a unit that was edited"),
  },
  "node/doctor/can-meet.ts": {
    "canMeet: `Ask the organization's administrator to make a node with a public address a relay: ${brand.executable} admin node update ${quoteWord(slug)} NODE --relay`":
      "advice: an administrator decides which node is a relay",
  },
  "node/doctor/examine-names.ts": {
    "disturbedLink: `networkctl status ${device}: if it names a .network file, set Unmanaged=yes for ${device} in it`":
      "advice: it shows what disturbs",
    "disturbedLink: `resolvectl status ${device}; networkctl status ${device}`":
      "advice: it shows what disturbs",
    "disturbedLink: routesCommand(way, slug)": "advice: it shows what disturbs",
    'examineName: \'The line "hosts:" of /etc/nsswitch.conf needs "files"\'':
      "advice: an administrator edits the file",
    "examineName: `${run} names lists all; \\`${run} admin org update ORG --names rules\\` shows a node fewer`":
      "advice: an administrator decides what nodes see",
    'examineName: `See what is between them: ${routes}${way === "resolved" ? \'; the line "hosts:" of /etc/nsswitch.conf\' : ""}`':
      "advice: it shows what is between",
    'examineName: isByResolver ? `Another program answers first. See which: ${routes}` : \'Another program answers first: "files" must be the first source in the line "hosts:" of /etc/nsswitch.conf\'':
      "advice: it shows which program answers",
    "examineName: restartNames({ way })": [
      "e2e/resolved-names.test.ts",
      "answer again after the line that doctor prints where their resolver hangs",
    ],
    'damagedFile: "Remove the lines of the block by hand"':
      "advice: only a person knows which lines are whose",
    "examineOff: `${run} names --clear`": machine("names that are left in the file of names"),
    "refusedSuffix: `${run} names disallow ${suffix.name} --org-slug ${slug}, or mend what it says`": [
      "e2e/resolved-names.test.ts",
      "end in another domain only while root allows it",
    ],
    "examineOff: `sudo ${run} names --on --peers`": [
      "e2e/resolved-names.test.ts",
      "are answered to peers once root allows it",
    ],
    "faultOfService: portCommand(resolverAddress.port)": "advice: it shows which program has the port",
    "faultOfService: restart": machine("names in the file of names that are not current"),
    'silentPeers: silent.state === "failed" ? `See which program uses the port: ${portCommand(53)}` : `sudo ${run} names --on --peers; or end the role: \\`${run} admin node update ${quoteWord(silent.slug)} NODE --no-names\\``':
      ["e2e/resolved-names.test.ts", "are answered to peers once root allows it"],
  },
  "node/doctor/netcheck.ts": {
    ": `${run} up ${quoteWord(slug)}`": machine("an engine that is stopped, and should run"),
    'examineTcp: "Let TCP and WebSocket pass to these addresses; a proxy before the control plane must pass /tcp/ on"':
      "advice: what drops it is not on this machine",
    "examineUdp: cure": [
      "e2e/tcp-fallback.test.ts",
      "goes by TCP, tells it, and comes back without a lost ping",
    ],
    'examineMapping: "Forward a UDP port to this machine and set --external-port, or rely on relays"':
      "advice: a router of somebody else forwards it",
    "examineMapping: `${run} status --check`": "advice: it asks again",
    "examineMtu: lostLarge.cure": machine("large packets that are lost"),
    "examineMtu: smallerPackets({ bytes }, { own }, { slug, directory })": machine(
      "large packets that are lost",
    ),
    "examineUdp: `${run} doctor`": "advice: doctor says why there is none",
    "withoutReport: `${run} restart ${quoteWord(slug)} # if it stays so`":
      "advice: the socket comes by itself",
    "withoutReport: `${run} overlay update`": [
      "e2e/engine-in-use.test.ts",
      "an update restarts once with the new engine",
    ],
  },
  "node/doctor/organization.ts": {
    'examineAccess: note.reason === organizationDeleted ? leaveDeleted(slug) : "Ask the organization\'s administrator to restore this node"':
      "advice: an administrator restores the node, or it leaves",
    "examineBlocklist: remedy": "advice: an administrator rotates a CA; e2e/ca-rotation.test.ts does",
    "examineOrganization: `${sync}, else ${registerAgain}`": machine("an X.509 certificate that is damaged"),
    "examineOrganization: registerAgain": machine("keys that do not belong to the certificate"),
    "examineOrganization: remedyOfRefusal(organization)": machine(
      "settings of this machine that are damaged",
    ),
    "examineOrganization: sync": endingCertificate,
    'examineFiles: [...new Set(remedies)].join(" && ")': machine("a key that others can read"),
    "examineListenPort: remedy": machine("a port that another program has"),
    "examineRelayTraffic: installNft": "advice: it installs a package of the system",
    "examineRoute: `${run} restart ${organization.slug}`": machine("no route to the overlay"),
    "examineRoute: `Disable ${foreign}, then run: ${run} restart ${organization.slug}`": machine(
      "another interface with the overlay's route",
    ),
  },
  "node/doctor/configuration.ts": {
    "examineSent: askSigner": "advice: a signer decides; test/node/contact/observe-seal.test.ts",
    "examineSent: isOfOverrides ? `Correct ${overrides}, then run: ${sync}` : sync": machine(
      "settings of this machine that are damaged",
    ),
    "examineConfiguration: remedy": ["e2e/host-names.test.ts", "the name is used when it resolves again"],
    "examineSent: sync": machine("settings of this machine that are not applied"),
  },
  "node/doctor/certificates.ts": {
    "examineCertificate: setClock": "advice: as the clock above",
    "examineCertificate: sync": endingCertificate,
    "examineKeys: howToRegisterAgain(organization)": machine("keys that do not belong to the certificate"),
  },
  "node/doctor/machine-use.ts": {
    "examineInterfaces: remedy": machine("a network inside of the overlay, which is meant"),
    "leftOutFinding: `${ask}, or allow the routes that you want: ${line}`": machine(
      "a route into the internet that the organization sends",
    ),
    "leftOutFinding: ask": "advice: an administrator of the organization changes it",
    "lostNetwork: `ip route replace ${network} dev ${quoteWord(device)} src ${source}`": machine(
      "no route to an attached network",
    ),
    "examinePermissions: `Allow it for good: ${lineOf(organization.slug, flags)}`": machine(
      "a route into the internet from before it needed a permission",
    ),
  },
  "node/doctor/traffic.ts": {
    "confirmationChecks: next": "advice: a user confirms the node; e2e/returned.test.ts does",
    "examineForwarding: `${run} up ${quoteWord(slug)} --advertise none # or the networks behind this machine`":
      "advice: root chooses what to offer",
    "examineForwarding: unreached.cure":
      "advice: it shows the way to what does not answer behind the router, or installs a package of the system",
    "examineForwarding: remedy": ["e2e/doctor.test.ts", "a router that does not forward"],
    "notRunning: `${run} start ${quoteWord(slug)}`": machine("an engine that is stopped, and should run"),
    "examineRoutes: restart": machine("no route to the overlay"),
    "examineRoutes: silent.cure": "advice: on the router",
    "examineRoutes: `On ${name}: ${run} doctor`": "advice: on the router",
    "examineFinding: `${run} overlay install && ${cure}`": booted(
      "is to install the engine where its file is gone",
    ),
    "examineFinding: cure": "the table of kinds below",
    "examineFinding: unreached.cure": "advice: on the lighthouse, or in the network between",
  },
  "node/doctor/underlay.ts": {
    "udpFinding: cure": "advice: on the lighthouse, or in the network between",
  },
};

/** What `status` finds, and `doctor` and `netcheck` repeat (findings.ts). */
const kinds: Record<Kind, Proof> = {
  not_running: machine("an engine that is stopped, and should run"),
  certificate_not_valid_yet: "advice: as the clock above",
  certificate_expired: endingCertificate,
  cloned: ["e2e/clones.test.ts", "cured by the line that is printed"],
  no_lighthouse: "advice: an administrator makes one; e2e/doctor.test.ts has the fault",
  lighthouses_silent: "advice: see underlay.ts above",
  nodes_silent: "advice: firewalls before this machine",
  no_node_came: "advice: firewalls before this machine",
  routers_silent: "advice: on the router",
  network_unreached: "advice: as examineForwarding above",
  tunnels_dead: "advice: it shows the peers",
  large_packets_lost: machine("large packets that are lost"),
  probing: "advice: it asks again",
  icmp_denied: [
    "e2e/doctor.test.ts",
    "that a daemon may not send ICMP, and the line that it prints ends that",
  ],
  tunnels_unknown: ["e2e/engine-in-use.test.ts", "an update restarts once with the new engine"],
  contact_unknown: "advice: firewalls before this machine",
  manager_silent: "advice: it shows what systemd waits for",
  not_checked: booted("the timer is stopped"),
  not_started_at_boot: booted("the timer is disabled"),
  disk_full: ["e2e/daemon-disk.test.ts", "with room again all goes on"],
  forgotten: booted("ends it in desktop mode: the daemon is stopped and disabled"),
  clock_differs: "advice: as the clock above",
  address_moved: "advice: an administrator changes the address",
  disk_filling: ["e2e/daemon-disk.test.ts", "nearly full: status and doctor say so"],
  peers_silent: "advice: it shows the peers",
};

/** The calls that print a cure, each with the function that it stands in. */
function sitesOf(file: string, text: string): string[] {
  const found = new Set<string>();
  const functions: string[] = [];
  const textOf = ({ start, end }: { start: number; end: number }) =>
    text.slice(start, end).replaceAll(/\s+/g, " ");
  const note = (remedy: string) => void found.add(`${functions.at(-1) ?? ""}: ${remedy}`);
  const { program } = parseSync(file, text);
  new Visitor({
    FunctionDeclaration: (node) => void functions.push(node.id?.name ?? ""),
    "FunctionDeclaration:exit": () => void functions.pop(),
    CallExpression(node) {
      const name = node.callee.type === "Identifier" ? node.callee.name : "";
      const at = positions.get(name);
      const remedy = at === undefined ? undefined : node.arguments[at];
      if (remedy !== undefined) note(textOf(remedy));
      const options = name === "runCheck" ? node.arguments[2] : undefined;
      if (options?.type !== "ObjectExpression") return;
      for (const option of options.properties)
        if (option.type === "Property" && textOf(option.key) === "cure") note(textOf(option.value));
    },
    Property(node) {
      if (textOf(node.key) === "remedy" && node.value.type !== "Identifier") note(textOf(node.value));
    },
  }).visit(program);
  return [...found].sort();
}

test("every cure is in the table, with its trial or the reason why it needs none", async () => {
  const found: Record<string, string[]> = {};
  const files = [...new Bun.Glob("node/doctor/*.ts").scanSync(source), "daemon/asking/doctor-checks.ts"];
  for (const file of files.sort()) {
    const sites = sitesOf(file, await Bun.file(join(source, file)).text());
    if (sites.length > 0) found[file] = sites;
  }
  const known = Object.entries(proofs).map(([file, sites]) => [file, Object.keys(sites).sort()]);
  expect(found).toEqual(Object.fromEntries(known));
  expect(Object.keys(kinds).sort()).toEqual([...allKinds].sort());
});

test("every trial in the table is there", async () => {
  const all = [...Object.values(proofs).flatMap((each) => Object.values(each)), ...Object.values(kinds)];
  const missing: string[] = [];
  for (const proof of all) {
    if (typeof proof === "string") continue;
    const [file, trial] = proof;
    if (!(await Bun.file(join(tests, file)).text()).includes(trial)) missing.push(`${file}: ${trial}`);
  }
  expect(missing).toEqual([]);
});
