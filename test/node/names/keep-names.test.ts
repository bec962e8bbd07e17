// The service's loop with real files, and what `agent names` and the doctor say of them.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { cpSync, linkSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { examineNames } from "../../../src/node/doctor/examine-names.ts";
import { messageOf } from "../../../src/base/errors.ts";
import { writeHosts } from "../../../src/node/files/hosts.ts";
import type { Organization } from "../../../src/node/files/organizations.ts";
import { clearBlock, keepNames, makeNamesStep } from "../../../src/node/names/keep-names.ts";
import { makeNamesReader } from "../../../src/node/names/names-reader.ts";
import { agrees, askSystem, findNames, readNamesState } from "../../../src/node/names/find-names.ts";
import { readNameRecords } from "../../../src/node/names/name-records.ts";
import type { LinkState, ServiceState } from "../../../src/node/names/service-state.ts";
import { realSystem } from "../../../src/base/system.ts";
import { makeNodeWorld, type NodeWorld } from "../../support/node.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const usual = "127.0.0.1 localhost\n";
const owner = process.getuid?.() ?? 0;

describe.skipIf(process.platform !== "linux")("names of a machine", () => {
  let world: NodeWorld;
  let organization: Organization;
  let directory: ReturnType<typeof temporaryDirectory>;
  let path: string;
  let configRoot: string;
  let ip: string;
  const settle = () => utimesSync(path, new Date(Date.now() - 60_000), new Date(Date.now() - 60_000));
  const foreign = (text: string) => {
    writeFileSync(path, text);
    settle();
  };
  const read = () => readFileSync(path, "latin1");
  const name = (label: string) =>
    writeHosts(organization.directory, {
      schema: 1,
      version: 1,
      view: "all",
      nodes: [{ id: 3, name: label, ip }],
      aliases: [],
    });
  const step = (now: () => number = Date.now) => {
    const reader = makeNamesReader(configRoot);
    const { run, close } = makeNamesStep({ path, owner }, { now });
    return { run: async (inBlock?: (slug: string) => boolean) => run(await reader.read(), inBlock), close };
  };

  beforeEach(async () => {
    world = await makeNodeWorld();
    organization = await world.register();
    directory = temporaryDirectory();
    path = join(directory.path, "hosts");
    configRoot = join(organization.directory, "..");
    ip = organization.config.ip_address ?? "";
    name("beta");
    foreign(usual);
  });
  afterEach(async () => {
    directory[Symbol.dispose]();
    await world[Symbol.asyncDispose]();
  });

  test("follow a rename and a revocation, and are there again after a restore", async () => {
    const service = step();
    const run = () => {
      settle();
      return service.run();
    };
    expect(await run()).toBe("written");
    expect(read()).toContain(`${ip} beta.${organization.slug}.internal\n`);
    expect(await run()).toBe("same");
    name("gamma");
    expect(await run()).toBe("written");
    expect(read()).toContain("gamma");
    expect(read()).not.toContain("beta");
    const note = join(organization.directory, "auth-revoked.json");
    writeFileSync(note, "{}");
    expect(await run()).toBe("written");
    expect(read()).toBe(usual);
    rmSync(note);
    expect(await run()).toBe("written");
    rmSync(organization.directory, { recursive: true });
    await run();
    expect(read()).toBe(usual);
    service.close();
  });

  test("are written after a failure, though the hosts file has not changed since", async () => {
    const service = step();
    expect(await service.run()).toBe("written");
    settle();
    expect([await service.run(), await service.run()]).toEqual(["same", "same"]);
    const second = join(directory.path, "second");
    linkSync(path, second);
    name("gamma");
    expect(await service.run().catch(messageOf)).toContain("hard link");
    rmSync(second);
    expect(await service.run()).toBe("written");
    expect(read()).toContain("gamma");
    service.close();
  });

  test("leave the hosts file for a resolver, and come back to it", async () => {
    const service = step();
    expect(await service.run()).toBe("written");
    settle();
    expect(await service.run(() => false)).toBe("written");
    expect(read()).toBe(usual);
    settle();
    expect(await service.run((slug) => slug === organization.slug)).toBe("written");
    expect(read()).toContain("beta");
    service.close();
  });

  test("stay in the hosts file under the unit of an earlier release, which has no network", async () => {
    const warned: string[] = [];
    const write = () => undefined;
    const log = { debug: write, info: write, error: write, warn: (text: string) => void warned.push(text) };
    const over = async () => {
      throw new Error("over");
    };
    const system = { ...realSystem(), env: {}, sleep: over };
    const ended = await keepNames({ configRoot, path, owner }, { system, log }).catch(messageOf);
    expect(ended).toBe("over");
    expect(read()).toContain(`beta.${organization.slug}.internal`);
    expect(warned[0]).toContain("agent names --on");
  });

  test("are not fought over without end with a program that removes them", async () => {
    const service = step();
    const done: string[] = [];
    for (let at = 0; at < 6; at++) {
      foreign(usual);
      done.push(await service.run());
    }
    expect(done).toEqual(["written", "written", "written", "written", "written", "fought"]);
    service.close();
  });

  test("are not fought over with a program that removes them every second, and are back at once after a quiet minute", async () => {
    let now = Date.now();
    const service = step(() => now);
    const undone = async (afterMs: number) => {
      now += afterMs;
      foreign(usual);
      const done = await service.run();
      expect([await service.run(), await service.run()]).not.toContain("written");
      return done;
    };
    const every: string[] = [];
    for (let at = 0; at < 8; at++) every.push(await undone(1000));
    expect(every).toEqual([...Array<string>(5).fill("written"), "fought", "fought", "fought"]);
    expect(await undone(60_000)).toBe("written");
    service.close();
  });

  test("of one damaged organization are missing alone, with the reason", async () => {
    writeFileSync(join(organization.directory, "host.crt"), "no certificate");
    const { names, without } = await readNameRecords(configRoot);
    expect(names).toEqual([]);
    expect(without).toHaveLength(1);
  });

  test("of an organization whose domain clouds or container engines use are left out, with the reason", async () => {
    cpSync(organization.directory, join(configRoot, "google"), { recursive: true });
    const { names, without } = await readNameRecords(configRoot);
    expect(names.map(({ slug }) => slug)).toEqual([organization.slug]);
    expect(without).toEqual([{ slug: "google", reason: "other software uses names below google.internal" }]);
  });

  test("are cleared also while another program has just written the file", async () => {
    const service = step();
    await service.run();
    service.close();
    writeFileSync(path, `${read()}10.0.0.9 mine\n`);
    expect(await clearBlock({ path, owner }, realSystem())).toBe("written");
    expect(read()).toBe(`${usual}10.0.0.9 mine\n`);
    expect(statSync(path).nlink).toBe(1);
  });

  test("are shown with the source of a program's answer", async () => {
    const full = `beta.${organization.slug}.internal`;
    const asked = async (answers: readonly string[]) =>
      askSystem({ name: full, slug: organization.slug }, await readNamesState(configRoot, path, undefined), {
        ...realSystem(),
        lookup: async () => answers,
      });
    expect((await asked([])).source).toBe("none");
    expect(await asked(["192.0.2.1"])).toEqual({ source: "dns", answers: ["192.0.2.1"] });
    const service = step();
    await service.run();
    service.close();
    const answer = await asked([ip]);
    expect(answer.source).toBe("block");
    const [entry] = findNames((await readNamesState(configRoot, path, undefined)).names, "BETA");
    if (entry === undefined) throw new Error("beta is not found");
    expect(findNames([entry], ip)).toEqual([entry]);
    expect(findNames([entry], full)).toEqual([entry]);
    expect(findNames([entry], "bet")).toEqual([]);
    expect(agrees(entry, answer)).toBe(true);
    expect(agrees(entry, await asked(["192.0.2.1"]))).toBe(false);
    foreign(`${usual}192.0.2.1 ${full}\n`);
    expect((await asked(["192.0.2.1"])).source).toBe("hosts");
  });

  test("are examined by the doctor", async () => {
    const doctor = async (isOn: boolean, answers: readonly string[] = [ip]) => {
      const system = { ...realSystem(), lookup: async () => answers };
      const { verdict, evidence } = await examineNames({ configRoot, path, isOn, owner }, system);
      return `${verdict}: ${evidence}`;
    };
    expect(await doctor(false)).toStartWith("skipped: off");
    expect(await doctor(true)).toStartWith("warn: the names in");
    const service = step();
    await service.run();
    service.close();
    expect(await doctor(true)).toStartWith(`ok: beta.${organization.slug}.internal is found`);
    expect(await doctor(true, [])).toStartWith("fail: the C library does not find");
    expect(await doctor(true, ["192.0.2.1"])).toContain("programs get 192.0.2.1");
    expect(await doctor(false)).toContain("the service is not installed");
    foreign("# BEGIN overlay-agent names: written by `agent names`, changes in this block are lost\n");
    expect(await doctor(true)).toContain("marks");
  });

  test("are examined by the doctor where systemd-resolved is asked", async () => {
    const full = `beta.${organization.slug}.internal`;
    const link = (state: LinkState["state"], reason?: string): ServiceState => ({
      schema: 1,
      suffixes: [],
      peers: [],
      serving: {
        way: "resolved",
        links: [
          { slug: organization.slug, device: "ov-acme", state, ...(reason === undefined ? {} : { reason }) },
        ],
      },
    });
    const doctor = async (
      service: ServiceState,
      { answers = [ip], isSilent = false }: { answers?: string[]; isSilent?: boolean } = {},
    ) => {
      const system = { ...realSystem(), lookup: async () => answers };
      const places = { configRoot, path, isOn: true, owner, service };
      const { verdict, evidence, remedy } = await examineNames(places, system, async () =>
        isSilent ? undefined : [ip],
      );
      return `${verdict}: ${evidence} ${remedy ?? ""}`;
    };
    expect(await doctor(link("served"))).toStartWith(`ok: ${full} is found through systemd-resolved`);
    expect(await doctor(link("waiting"), { answers: [] })).toStartWith("ok: on; names come when");
    expect(await doctor(link("disputed", "another program"))).toContain("resolvectl status ov-acme");
    expect(await doctor(link("served"), { answers: [] })).toStartWith("fail: the resolver finds");
    expect(await doctor(link("served"), { answers: ["192.0.2.1"] })).toContain(
      "Another program answers first",
    );
    expect(await doctor(link("served"), { answers: [], isSilent: true })).toContain("does not answer");
    // Refused: the names belong into the hosts file.
    expect(await doctor(link("refused", "Link is managed"))).toContain("are not current");
    const service = step();
    await service.run();
    service.close();
    expect(await doctor(link("refused", "Link is managed"))).toContain("networkctl status ov-acme");
    const taken = {
      ...link("served"),
      serving: { way: "hosts" as const, reason: "taken" },
      fault: "port taken",
    };
    expect(await doctor(taken)).toContain("ss -lnup");
    // With the resolver, a block that is left is not current.
    expect(await doctor(link("served"))).toContain("are not current");
  });

  test("are examined by the doctor where the daemon serves them", async () => {
    const links = (state: LinkState["state"], reason?: string): LinkState[] => [
      { slug: organization.slug, state, ...(reason === undefined ? {} : { reason }) },
    ];
    const doctor = async (
      serving: ServiceState["serving"] | undefined,
      { answers = [ip], fault }: { answers?: string[]; fault?: string } = {},
    ) => {
      const common = { schema: 1 as const, suffixes: [], peers: [] };
      const service = serving && { ...common, serving, ...(fault === undefined ? {} : { fault }) };
      const way = serving?.way === "resolver_files" ? "resolver_files" : "nrpt";
      const system = { ...realSystem(), lookup: async () => answers };
      const places = { configRoot, path, isOn: true, owner, service, way } as const;
      const { verdict, evidence, remedy } = await examineNames(places, system, async () => [ip]);
      return `${verdict}: ${evidence} ${remedy ?? ""}`;
    };
    const nrpt = (state: LinkState["state"], reason?: string, in_policy = false) =>
      ({ way: "nrpt", links: links(state, reason), in_policy }) as const;
    const files = (state: LinkState["state"], reason?: string) =>
      ({ way: "resolver_files", links: links(state, reason) }) as const;
    expect(await doctor(undefined)).toStartWith("fail: the daemon does not serve names schtasks");
    expect(await doctor(nrpt("served"))).toContain("is found through rules for name resolution (NRPT)");
    expect(await doctor(nrpt("served", undefined, true))).toContain("in the group policy too");
    expect(await doctor(files("served"))).toContain("is found through files in /etc/resolver");
    expect(await doctor(nrpt("served"), { answers: [] })).toContain("Get-DnsClientNrptPolicy");
    expect(await doctor(nrpt("disputed", "another program"))).toStartWith("warn:");
    expect(await doctor(files("refused", "a file of another program"))).toContain("scutil --dns");
    const none = { way: "none", reason: "Windows error 5" } as const;
    expect(await doctor(none)).toStartWith("fail: Windows error 5");
    expect(await doctor(none, { fault: "port taken" })).toStartWith("warn: port taken");
  });
});
