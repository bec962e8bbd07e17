// The organizations of a machine for daemon tests, with real files, store and processes. A script is the engine, and the
// control plane is a fake.

import { expect } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { noticeOf } from "../../src/daemon/actions.ts";
import type { ControlPlane, TeamNews } from "../../src/daemon/control-plane.ts";
import { makeGate } from "../../src/daemon/gate.ts";
import type { Notice } from "../../src/daemon/ipc/messages.ts";
import { openState, type StateStore } from "../../src/daemon/state.ts";
import { makeTeams, type Teams } from "../../src/daemon/teams.ts";
import { AppError } from "../../src/errors.ts";
import { encodePem, makeCa, signCertificate } from "../../src/pki/nebula.ts";
import { realSystem } from "../../src/system.ts";
import { temporaryDirectory } from "./temporary.ts";

const day = 86_400;

type Change = { octet?: number; mode?: string; days?: number; registeredAt?: string; network6?: string };

const standIn = `#!/bin/bash
case $1 in -version) echo "Version: 1.10.3"; exit;; -test) echo once >>"$0.tests"; exit;; esac
trap 'exit 0' TERM
trap : HUP
echo '{"level":"info","msg":"Nebula interface is active"}'
while :; do sleep 0.01; done
`;

export type TeamsWorld = ReturnType<typeof makeTeamsWorld>;

export function makeTeamsWorld() {
  const temporary = temporaryDirectory();
  const directory = temporary.path;
  const configRoot = join(directory, "etc");
  mkdirSync(configRoot);
  writeFileSync(join(directory, "engine"), standIn, { mode: 0o755 });
  const system = realSystem();
  const said: string[] = [];
  const keep = (text: string, fields = {}) => void said.push(`${text} ${JSON.stringify(fields)}`);
  const log = { debug() {}, info: keep, warn: keep, error: keep };
  let opened: { teams: Teams; store: StateStore }[] = [];

  function open(options: { mayStart?: boolean; engine?: string } = {}) {
    const { mayStart = true, engine = join(directory, "engine") } = options;
    const followed: string[] = [];
    const synced: string[] = [];
    const told: TeamNews[] = [];
    const controlPlane: ControlPlane = {
      async follow({ slug }, _control, news, signal) {
        followed.push(slug);
        news.checkedIn("2026-11-20T12:00:00Z");
        told.push(news);
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        // A change is being applied.
        await Bun.sleep(20);
        followed.splice(followed.indexOf(slug), 1);
      },
      async sync({ slug }) {
        synced.push(slug);
        await Bun.sleep(20);
        return { access: "ok", action: "none", result: "same", configVersion: synced.length };
      },
    };
    const notices: Notice[] = [];
    const store = openState(join(directory, "state.db"), log, Date.now);
    const teams = makeTeams({
      configRoot,
      stateDirectory: directory,
      store,
      system,
      monotonic: () => performance.now(),
      log,
      gate: makeGate({ configRoot, overlayBinary: engine, overlayBinaryGiven: true }, system, log),
      controlPlane,
      publish: ({ team, status }) => void notices.push(noticeOf(team, status)),
    });
    teams.open(mayStart);
    const made = { teams, store, notices, followed, told, synced };
    opened.push(made);
    return made;
  }

  /** Ends a daemon like SIGKILL: its engines keep running. */
  async function crash(made: ReturnType<typeof open>): Promise<void> {
    await made.teams.handOver();
    expect(made.followed).toEqual([]);
    made.store.close();
    opened = opened.filter(({ teams }) => teams !== made.teams);
  }

  return {
    directory,
    configRoot,
    system,
    log,
    said,
    register: (slug: string, change?: Change) => writeTeam(configRoot, slug, change),
    open,
    crash,
    async [Symbol.asyncDispose]() {
      for (const { teams, store } of opened) {
        await teams.shutDown();
        store.close();
      }
      temporary[Symbol.dispose]();
    },
  };
}

/** Writes the files of an organization as a registration does. */
function writeTeam(configRoot: string, slug: string, change: Change = {}): void {
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

export const stateOf = (teams: Teams, slug: string) => teams.status(slug)[0]?.state;

export async function until(what: () => boolean): Promise<void> {
  for (let waited = 0; !what(); waited += 5) {
    if (waited > 8000) throw new Error(`Waited in vain for ${what.toString()}`);
    await Bun.sleep(5);
  }
}

export async function codeOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return error instanceof AppError ? error.code : String(error);
}
