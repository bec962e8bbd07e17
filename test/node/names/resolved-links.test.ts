// What systemd-resolved is told for each interface, and in which order: at no moment may it ask our resolver for a name
// that is not ours. The real systemd-resolved is in test/e2e/resolved-names.test.ts.

import { beforeEach, describe, expect, test } from "bun:test";
import type { ResolutionSettings } from "../../../src/node/names/lasting-settings.ts";
import { makeLinks } from "../../../src/node/names/resolved-links.ts";
import { BusError, type Bus } from "../../../src/platform/systemd/dbus.ts";
import type { Call } from "../../../src/platform/systemd/dbus-wire.ts";

type Link = {
  dns: unknown[];
  domains: [string, boolean][];
  defaultRoute: boolean;
  others: Record<string, string>;
};

const resolve1 = "org.freedesktop.resolve1";
const server = { host: "127.0.0.9", port: 5399 };
const ours = [2, [127, 0, 0, 9], 5399, ""];
const zone = (slug: string, device = `ov-${slug}`) => ({
  slug,
  device,
  addresses: [],
  domains: [`${slug}.internal`, "77.10.in-addr.arpa"],
});
const acme = zone("acme");

/** systemd-resolved with some interfaces. Throws if an interface with our server is the way of all names. */
function makeResolved() {
  const links = new Map<number, Link>();
  const calls: string[] = [];
  const fresh = (): Link => ({ dns: [], domains: [], defaultRoute: true, others: {} });
  const state = { owner: 1, isRunning: true, isBusOpen: true, refuses: "" };
  const set = (member: string, link: number, value: unknown) => {
    const found = links.get(link);
    if (found === undefined) throw new BusError(`${resolve1}.NoSuchLink`, `Link ${link} not known`);
    if (state.refuses === member) throw new BusError(`${resolve1}.LinkBusy`, "Link is managed.");
    if (member === "RevertLink") Object.assign(found, fresh());
    else if (member === "SetLinkDNSEx") found.dns = value as unknown[];
    else if (member === "SetLinkDomains") found.domains = value as [string, boolean][];
    else if (member === "SetLinkDefaultRoute") found.defaultRoute = value === true;
    else found.others[member.replace("SetLink", "")] = String(value);
    if (found.dns.length > 0 && (found.defaultRoute || found.domains.length === 0))
      throw new Error(`every name goes to our resolver after ${member}`);
  };
  const properties = ({ dns, domains, defaultRoute, others }: Link) => ({
    DNSEx: dns,
    Domains: domains,
    DefaultRoute: defaultRoute,
    LLMNR: "yes",
    MulticastDNS: "yes",
    DNSSEC: "no",
    DNSOverTLS: "no",
    ScopesMask: 1n,
    ...others,
  });
  const bus: Bus = {
    async call({ destination, member, path, body = [] }: Call) {
      if (!state.isBusOpen) throw new Error("The system bus closed the connection");
      if (member === "NameHasOwner") return [state.isRunning];
      if (destination !== resolve1 || !state.isRunning)
        throw new BusError("org.freedesktop.DBus.Error.NameHasNoOwner", "");
      if (member === "GetLink" && !links.has(Number(body[0])))
        throw new BusError(`${resolve1}.NoSuchLink`, "not known");
      if (member === "GetLink") return [`/link/${String(body[0])}`];
      const link = Number(member === "GetAll" ? path.split("/").at(-1) : body[0]);
      if (member === "GetAll") return [Object.entries(properties(links.get(link) ?? fresh()))];
      calls.push(member);
      set(member, link, body[1]);
      return [];
    },
    ownerChanges: () => state.owner,
    watchOwner: async () => undefined,
    get isClosed() {
      return !state.isBusOpen;
    },
    close: () => undefined,
  };
  return { bus, calls, links, fresh, state };
}

describe("interfaces in systemd-resolved", () => {
  let resolved: ReturnType<typeof makeResolved>;
  let links: ResolutionSettings;
  let now = 0;
  let isAsked = true;
  const indexes = new Map<string, number>();
  const is = async (slug: string) => {
    const way = await links.keep([acme]);
    return !("links" in way) ? "hosts" : way.links.find((each) => each.slug === slug)?.state;
  };
  const plug = (device: string, link: number) => {
    indexes.set(device, link);
    resolved.links.set(link, resolved.fresh());
  };

  beforeEach(() => {
    resolved = makeResolved();
    isAsked = true;
    indexes.clear();
    plug("ov-acme", 7);
    links = makeLinks(server, {
      monotonic: () => now,
      bus: async () => {
        if (!resolved.state.isBusOpen) throw new Error("There is no system bus");
        return resolved.bus;
      },
      asks: () => isAsked,
      find: () => (each) => indexes.get(each.device ?? ""),
    });
  });

  test("get our server last, for the organization's domains only, and once", async () => {
    expect(await is("acme")).toBe("served");
    expect(resolved.links.get(7)).toEqual({
      dns: [ours],
      domains: acme.domains.map((each) => [each, true]),
      defaultRoute: false,
      others: { LLMNR: "no", MulticastDNS: "no" },
    });
    expect(resolved.calls.slice(0, 2)).toEqual(["SetLinkDefaultRoute", "SetLinkDomains"]);
    expect(resolved.calls.at(-1)).toBe("SetLinkDNSEx");
    const before = resolved.calls.length;
    now += 60_000;
    expect(await is("acme")).toBe("served");
    expect(resolved.calls).toHaveLength(before);
  });

  test("get the organization's own domain as search domain, where short names are asked for", async () => {
    const asked = makeLinks(server, {
      monotonic: () => now,
      search: true,
      bus: async () => resolved.bus,
      asks: () => true,
      find: () => () => 7,
    });
    await asked.keep([acme]);
    expect(resolved.links.get(7)?.domains).toEqual([
      ["acme.internal", false],
      ["77.10.in-addr.arpa", true],
    ]);
    expect(resolved.links.get(7)?.defaultRoute).toBe(false);
  });

  test("get it again with a new interface, and after a restart of systemd-resolved", async () => {
    await is("acme");
    indexes.delete("ov-acme");
    resolved.links.delete(7);
    expect(await is("acme")).toBe("waiting");
    plug("ov-acme", 8);
    expect(await is("acme")).toBe("served");
    expect(resolved.links.get(8)?.dns).toEqual([ours]);
    resolved.state.isRunning = false;
    resolved.state.owner++;
    expect(await is("acme")).toBe("waiting");
    resolved.links.set(8, resolved.fresh());
    resolved.state.isRunning = true;
    resolved.state.owner++;
    expect(await is("acme")).toBe("served");
    expect(resolved.links.get(8)?.dns).toEqual([ours]);
  });

  test("are tried again at once while systemd-resolved does not know them yet", async () => {
    resolved.links.delete(7);
    expect(await is("acme")).toBe("waiting");
    resolved.links.set(7, resolved.fresh());
    expect(await is("acme")).toBe("served");
  });

  test("lose our settings when the organization goes, and when programs no longer ask systemd-resolved", async () => {
    const beta = zone("beta");
    plug("ov-beta", 9);
    await links.keep([acme, beta]);
    await links.keep([beta]);
    expect([7, 9].map((link) => resolved.links.get(link)?.dns)).toEqual([[], [ours]]);
    isAsked = false;
    expect((await links.keep([beta])).way).toBe("hosts");
    expect(resolved.links.get(9)?.dns).toEqual([]);
    isAsked = true;
    await links.keep([beta]);
    expect(resolved.links.get(9)?.dns).toEqual([ours]);
  });

  test("keep the settings of another program when ours go", async () => {
    await is("acme");
    const foreign = { ...resolved.fresh(), dns: [[2, [192, 0, 2, 1], 53, ""]] };
    resolved.links.set(7, foreign);
    await links.keep([]);
    expect(resolved.links.get(7)).toBe(foreign);
  });

  test("are disputed with a program that changes them again and again", async () => {
    await is("acme");
    const states: (string | undefined)[] = [];
    for (let round = 0; round < 4; round++) {
      now += 2000;
      resolved.links.set(7, resolved.fresh());
      states.push(await is("acme"));
    }
    expect(states).toEqual(["served", "served", "disputed", "disputed"]);
    now += 2000;
    expect(await is("acme")).toBe("served");
  });

  test.each(["SetLinkDefaultRoute", "SetLinkDomains", "SetLinkDNSEx"])(
    "that refuse %s have none of our settings, and names go into the hosts file",
    async (member) => {
      resolved.state.refuses = member;
      expect(await is("acme")).toBe("refused");
      expect(resolved.links.get(7)).toEqual(resolved.fresh());
    },
  );

  test("without a bus leave names to the hosts file, until it is there again", async () => {
    await is("acme");
    resolved.state.isBusOpen = false;
    expect(await is("acme")).toBe("hosts");
    resolved.state.isBusOpen = true;
    expect(await is("acme")).toBe("served");
  });
});
