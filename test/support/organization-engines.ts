// The organizations of a machine with real files, a real store and real processes: a script replaces the engine. Only the
// control plane is faked.

import { expect } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { noticeOf } from "../../src/daemon/actions.ts";
import type { ControlPlane, ControlPlaneNews } from "../../src/daemon/control-plane.ts";
import { makeGate } from "../../src/daemon/start-checks.ts";
import type { Notice } from "../../src/daemon/ipc/messages.ts";
import { openState, type StateStore } from "../../src/daemon/state.ts";
import { OrganizationEngines } from "../../src/daemon/organization-engines.ts";
import { AppError } from "../../src/base/errors.ts";
import type { OverlayControl } from "../../src/node/engine/control-engine.ts";
import { encodePem } from "../../src/pki/bundle.ts";
import { makeCa, signCertificate } from "../../src/pki/nebula.ts";
import { realSystem } from "../../src/base/system.ts";
import { temporaryDirectory } from "./temporary.ts";

const day = 86_400;

type Change = { octet?: number; mode?: string; days?: number; registeredAt?: string; network6?: string };

/** It ends with its directory: some tests end as a daemon that was killed, whose engines keep running. */
const fakeEngine = `#!/bin/bash
case $1 in -version) echo "Version: 1.10.3"; exit;; -test) echo once >>"$0.tests"; exit;; esac
if grep -q 'is revoked meanwhile' "$2"; then
  echo '{"revoked_at":"2026-11-20T00:00:00Z","reason":"left","node_id":77}' >"\${2%/*}/auth-revoked.json"
fi
grep -q 'ends at once' "$2" && exit 1
trap 'exit 0' TERM
trap : HUP
echo '{"level":"info","msg":"Nebula interface is active"}'
while [ -e "$0" ]; do sleep 0.01; done
`;

export type EnginesWorld = ReturnType<typeof makeEnginesWorld>;

/** With a root of its own, unless one is given. */
export function makeEnginesWorld(root?: string) {
  const temporary = temporaryDirectory();
  const directory = temporary.path;
  const configRoot = root ?? join(directory, "etc");
  mkdirSync(configRoot, { recursive: true });
  writeFileSync(join(directory, "engine"), fakeEngine, { mode: 0o755 });
  const system = realSystem();
  const logged: string[] = [];
  const keep = (text: string, fields = {}) => void logged.push(`${text} ${JSON.stringify(fields)}`);
  const log = { debug() {}, info: keep, warn: keep, error: keep };
  let opened: { engines: OrganizationEngines; store: StateStore }[] = [];

  function open(options: { mayStart?: boolean; engine?: string; controlPlane?: ControlPlane } = {}) {
    const { mayStart = true, engine = join(directory, "engine") } = options;
    const followed: string[] = [];
    const synced: string[] = [];
    const news: ControlPlaneNews[] = [];
    const controls: OverlayControl[] = [];
    let onSync = () => {};
    const faked: ControlPlane = {
      async follow({ slug }, control, own, signal) {
        followed.push(slug);
        controls.push(control);
        own.checkedIn("2026-11-20T12:00:00Z");
        news.push(own);
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        // A change that is being applied.
        await Bun.sleep(20);
        followed.splice(followed.indexOf(slug), 1);
      },
      leave: async () => {},
      async sync({ slug }) {
        synced.push(slug);
        await Bun.sleep(20);
        onSync();
        return { access: "ok", action: "none", result: "same", configVersion: synced.length };
      },
    };
    const notices: Notice[] = [];
    const store = openState(join(directory, "state.db"), log, Date.now);
    const engines = new OrganizationEngines({
      configRoot,
      stateDirectory: directory,
      store,
      system,
      log,
      gate: makeGate({ configRoot, overlayBinary: engine, overlayBinaryGiven: true }, system, log),
      openEcho: async () => "denied",
      engineVersion: async () => "1.10.3",
      controlPlane: options.controlPlane ?? faked,
      publish: ({ slug, status }) => void notices.push(noticeOf(slug, status)),
    });
    engines.open(mayStart);
    const whenSynced = (work: () => void) => (onSync = work);
    const made = { engines, store, notices, followed, news, controls, synced, whenSynced };
    opened.push(made);
    return made;
  }

  /** Ends a daemon as SIGKILL would: its engines keep running. */
  async function crash(made: ReturnType<typeof open>): Promise<void> {
    await made.engines.handOver();
    expect(made.followed).toEqual([]);
    made.store.close();
    opened = opened.filter(({ engines }) => engines !== made.engines);
  }

  return {
    directory,
    configRoot,
    system,
    log,
    logged,
    register: (slug: string, change?: Change) => writeOrganization(configRoot, slug, change),
    open,
    crash,
    async [Symbol.asyncDispose]() {
      for (const { engines, store } of opened) {
        await engines.shutDown();
        store.close();
      }
      temporary[Symbol.dispose]();
    },
  };
}

/** Writes the files of an organization as a registration does. */
export function writeOrganization(configRoot: string, slug: string, change: Change = {}): void {
  const { octet = 77, mode = "desktop", days = 90, registeredAt = "2026-11-20T00:00:00Z", network6 } = change;
  const version = network6 === undefined ? 1 : 2;
  const now = Math.floor(Date.now() / 1000);
  const ca = makeCa({ version, name: slug, notBefore: now - day, notAfter: now + 400 * day });
  const certificate = signCertificate(
    {
      version,
      name: "desk",
      networks: [`10.${octet}.0.5/16`, ...(network6 === undefined ? [] : [network6])],
      unsafeNetworks: [],
      groups: [],
      notBefore: now - day,
      notAfter: now + days * day,
      publicKey: new Uint8Array(32).fill(7),
    },
    ca,
  );
  const node = {
    schema: 1,
    node_id: octet,
    name: "desk",
    org_slug: slug,
    ip_address: `10.${octet}.0.5`,
    mode,
  };
  const rest = { network: `10.${octet}.0.0/16`, is_lighthouse: false, is_relay: false, config_version: 1 };
  mkdirSync(join(configRoot, slug), { recursive: true });
  const files = {
    "config.yml": `tun: {dev: "o-${slug}"}\n`,
    "host.crt": encodePem(certificate),
    "node-config.json": JSON.stringify({ ...node, ...rest, registered_at: registeredAt }),
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(configRoot, slug, name), text);
}

export const stateOf = (engines: OrganizationEngines, slug: string) => engines.status(slug)[0]?.state;

export async function codeOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return error instanceof AppError ? error.code : String(error);
}
