// The organization's events as they happen. One shared worker holds one stream for all tabs of this browser, because
// browsers allow six connections to a server.

import { computed, effect, signal } from "@preact/signals";
import { awaySince, isSignedOut } from "./api.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import type { Contact } from "../nodes/listed-nodes.ts";
import { isFactorMissing, isOver, me, organization, readMe } from "./me.ts";

/** From the worker. `text`: JSON of `event` and `seen`, "" of the others. */
export type FromWorker = {
  /**
   * `event`: of the audit log. `seen`: nodes that were in contact, as a list. `open`, `away`: the stream. `refused`: the session ended,
   * there is no such organization any more, or the user may not read it. `asked`: whether the tab is still there.
   */
  kind: "event" | "seen" | "open" | "away" | "refused" | "asked";
  slug: string;
  text: string;
};
/** `here`: the tab is still open. */
export type ToWorker = { kind: "follow" | "here"; slug: string } | { kind: "leave" };

/** True while the stream is open, so that what is shown is current within a second. */
export const isLive = signal(false);

const aboutRights = /^(member\.(created|updated)|organization\.updated)$/;

type Listener = (event: AuditEvent) => void;
const listeners = new Set<Listener>();

/** Calls the listener for each event of the organization. Returns a function that ends it. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

const seenListeners = new Set<(contacts: readonly Contact[]) => void>();

/** The same for nodes that were in contact, a list each second at most. */
export function onSeen(listener: (contacts: readonly Contact[]) => void): () => void {
  seenListeners.add(listener);
  return () => void seenListeners.delete(listener);
}

/** Reads the signed-in user and the rights again: both may have changed. */
const readRights = () => readMe().catch(() => undefined);

/** Requests get no answer. Not while the page is read first (`me` undefined): `start` in me.ts tries that again. */
const isAway = computed(() => awaySince.value !== undefined && me.value !== undefined);
/** The pauses between attempts: each is twice the one before, up to the longest. */
const [shortestMs, longestMs] = [1000, 30_000];

/**
 * Asks until there is an answer. A stream alone does not tell that the control plane is back: some pages have none, and it
 * may stay open while a request is lost, as when a network of this machine appears.
 */
function readUntilBack(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isEnded = false;
  const tryAfter = (pauseMs: number) => {
    if (isEnded) return;
    timer = setTimeout(
      () => void readRights().then(() => tryAfter(Math.min(longestMs, 2 * pauseMs))),
      // A random pause, so that browsers do not all come at the same time.
      pauseMs * (0.75 + Math.random() / 4),
    );
  };
  tryAfter(shortestMs);
  return () => {
    isEnded = true;
    clearTimeout(timer);
  };
}

/** The organization that the address names, while the user may read it. */
const followed = computed(() =>
  isSignedOut.value || isFactorMissing.value ? undefined : organization.value?.slug,
);

/** Starts the worker, and follows the organization that the address names. */
export function startLive(): void {
  const url = document.querySelector<HTMLScriptElement>("script[data-worker]")?.dataset["worker"] ?? "";
  const port = startWorker(ownScript(url));
  const tell = (message: ToWorker) => port.postMessage(message);
  port.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => {
    if (data.slug !== followed.peek()) return;
    if (data.kind === "asked") tell({ kind: "here", slug: data.slug });
    else if (data.kind === "open") {
      // The worker drops a tab that sleeps, and `isLive` stays true there. False first, so that all that is shown is read again.
      isLive.value = false;
      isLive.value = true;
      awaySince.value = undefined;
      // Rights that changed before it was open came by no event.
      void readRights();
    } else if (data.kind === "away") {
      isLive.value = false;
      awaySince.value ??= Date.now();
    } else if (data.kind === "refused") {
      isLive.value = false;
      void readRights();
    } else if (data.kind === "seen") {
      const contacts = JSON.parse(data.text) as Contact[];
      for (const listener of seenListeners) listener(contacts);
    } else {
      const event = JSON.parse(data.text) as AuditEvent;
      for (const listener of listeners) listener(event);
      // The change may concern the role or settings of this user.
      if (aboutRights.test(event.type)) void readRights();
    }
  });
  const follow = () => {
    const slug = followed.value;
    tell(slug === undefined ? { kind: "leave" } : { kind: "follow", slug });
    isLive.value = false;
  };
  effect(follow);
  effect(() => (isAway.value ? readUntilBack() : undefined));
  addEventListener("pagehide", () => tell({ kind: "leave" }));
  // After going back, the browser may show the page as it was left.
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    if (isOver.peek() || me.peek() === undefined) return location.reload();
    follow();
    void readRights();
  });
}

/** Chrome on Android has shared workers since version 148. In a browser without them, each tab has a worker of its own. */
function startWorker(script: string): Pick<MessagePort, "addEventListener" | "postMessage"> {
  if (!("SharedWorker" in globalThis)) return new Worker(script, { type: "module" });
  const { port } = new SharedWorker(script, { type: "module" });
  port.start();
  return port;
}

type TrustedTypes = {
  createPolicy(
    name: string,
    rules: { createScriptURL(url: string): string },
  ): { createScriptURL(url: string): string };
};

/** Trusted Types refuse the URL of a script that is a plain text. Only files of the console pass. */
function ownScript(url: string): string {
  const check = (asked: string) => {
    if (!/^\/console\/files\/[a-z0-9.-]+$/.test(asked)) throw new TypeError("Not a script of the console");
    return asked;
  };
  const { trustedTypes } = globalThis as { trustedTypes?: TrustedTypes };
  return trustedTypes?.createPolicy("console", { createScriptURL: check }).createScriptURL(url) ?? check(url);
}
