// What happens in the organization, as it happens. One shared worker holds one stream for all tabs of this browser,
// because browsers allow six connections to a server.

import { effect, signal } from "@preact/signals";
import { awaySince, isSignedOut } from "./api.ts";
import type { AuditEvent } from "./audit-event.ts";
import type { Contact } from "./machines.ts";
import { isOver, me, readMe, slug } from "./me.ts";

/** From the worker. `event` has the text of one event. */
export type FromWorker =
  | { kind: "event"; slug: string; text: string }
  | { kind: "seen"; slug: string; text: string }
  | { kind: "open"; slug: string }
  | { kind: "away"; slug: string }
  | { kind: "ended"; slug: string };
export type ToWorker = { kind: "follow"; slug: string } | { kind: "leave" };

/** True while the stream is open, so that what is shown is current within a second. */
export const isLive = signal(false);

const aboutRights = /^(member\.(created|updated)|organization\.updated)$/;

type Listener = (event: AuditEvent) => void;
const listeners = new Set<Listener>();

/** Calls the listener for each event of the organization. Returns the end of it. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

const seenListeners = new Set<(contacts: readonly Contact[]) => void>();

/** The same for machines that were in contact, a list each second at most. */
export function onSeen(listener: (contacts: readonly Contact[]) => void): () => void {
  seenListeners.add(listener);
  return () => void seenListeners.delete(listener);
}

/** Who is signed in, and with which rights, may have changed. */
const look = () => void readMe().catch(() => undefined);

/** Starts to follow the organization that the address names. */
export function startLive(): void {
  const url = document.querySelector<HTMLScriptElement>("script[data-worker]")?.dataset["worker"] ?? "";
  const port = startWorker(ownScript(url));
  let wasAway = false;
  const tell = (message: ToWorker) => port.postMessage(message);
  port.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => {
    if (data.slug !== slug.peek()) return;
    if (data.kind === "open") {
      isLive.value = true;
      awaySince.value = undefined;
      if (wasAway) look();
      wasAway = false;
    } else if (data.kind === "away") {
      isLive.value = false;
      wasAway = true;
      awaySince.value ??= Date.now();
    } else if (data.kind === "ended") {
      isLive.value = false;
      isSignedOut.value = true;
    } else if (data.kind === "seen") {
      const contacts = JSON.parse(data.text) as Contact[];
      for (const listener of seenListeners) listener(contacts);
    } else {
      const event = JSON.parse(data.text) as AuditEvent;
      for (const listener of listeners) listener(event);
      // A role or a setting may be that of the person who looks.
      if (aboutRights.test(event.type)) look();
    }
  });
  const follow = () => {
    if (isSignedOut.value) tell({ kind: "leave" });
    else if (slug.value !== undefined) tell({ kind: "follow", slug: slug.value });
    isLive.value = false;
  };
  effect(follow);
  addEventListener("pagehide", () => tell({ kind: "leave" }));
  // On the way back the browser may show the page as it was left.
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    if (isOver.peek() || me.peek() === undefined) return location.reload();
    follow();
    look();
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
