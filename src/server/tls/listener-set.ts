// All listeners of the application, by the kind of its certificate. With `--tls acme` there are up to three: the public
// certificate, the own CA's for nodes that pinned it, and port 80 for challenges.

import { hostname } from "node:os";
import { AppError } from "../../base/errors.ts";
import type { Forwarder } from "../../base/datagrams/forwarder.ts";
import type { Log } from "../../base/log.ts";
import type { Network } from "../../base/ip.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import type { System } from "../../base/system.ts";
import type { ListenAddress } from "../http/edge.ts";
import type { Edge } from "../http/exchange.ts";
import type { AcmeOptions } from "../options.ts";
import { challengeOf } from "../store/acme-state.ts";
import type { Database } from "../store/database.ts";
import { publicUrlOf, readMeta, setMeta, type Known } from "../store/meta.ts";
import { queryNumber } from "../store/table.ts";
import { withForeignCa, type ForeignCa } from "./foreign-ca.ts";
import { makeListeners, type Application, type Listeners, type TlsSource } from "./listeners.ts";
import { tlsFromFiles } from "./operator-files.ts";
import type { OwnTls } from "./own-tls.ts";

export type AcmeTls = {
  acme: AcmeOptions;
  /** For HTTP-01. */
  challengeListen?: ListenAddress;
  /** Where nodes that pinned the own CA find it; "none": there are no such nodes. Without it: its former port. */
  ownCaListen?: ListenAddress | "none";
  /** Tell these nodes to trust the public certificate. */
  movesNodes?: boolean;
};

export type ListenerOptions = {
  listen: ListenAddress;
  publicUrl?: string;
  /** The operator's files, a certificate of the server's own CA, or one from an ACME server. */
  tls?: { certFile: string; keyFile: string } | "auto" | AcmeTls;
  /** The CA of this certificate, where machines do not know it. Not with "auto". */
  foreignCa?: ForeignCa;
  trustedProxies: readonly Network[];
  forwarder?: Forwarder;
  /** A service, whose next process listens beside it, and whether this is that next process (listeners.ts). */
  isService?: boolean;
  isSuccessor?: boolean;
};

type Deps = { db: Database; secretKey: SecretKeys; system: Pick<System, "now" | "random">; log: Log };

export type OpenListeners = Listeners & Pin;
/** The CA that new nodes must pin; empty where machines know the certificate's CA. */
type Pin = Pick<Known, "caFingerprint" | "isForeignCa"> & { caPem?: string };

export function acmeOf({ tls }: Pick<ListenerOptions, "tls">): AcmeTls | undefined {
  return typeof tls === "object" && "acme" in tls ? tls : undefined;
}

/** Prepares the listeners; `bind` opens them. */
export async function openListeners(options: ListenerOptions, deps: Deps): Promise<OpenListeners> {
  const { tls } = options;
  const acme = acmeOf(options);
  if (acme !== undefined) return openAcmeListeners(options, acme, deps);
  if (tls === "auto") {
    const own = await ownTls(options, [], deps);
    const { caFingerprint, caPem, source } = own;
    return { ...makeListeners({ ...options, tls: source }, deps.log), caFingerprint, caPem };
  }
  const files = tls === undefined || "acme" in tls ? undefined : withCa(tlsFromFiles(tls), options);
  return { ...makeListeners({ ...options, tls: files }, deps.log), ...pinOf(options) };
}

function withCa(source: TlsSource, { foreignCa }: ListenerOptions): TlsSource {
  return foreignCa === undefined ? source : withForeignCa(source, foreignCa);
}

function pinOf({ foreignCa }: ListenerOptions): Pin {
  return foreignCa === undefined
    ? {}
    : { caFingerprint: foreignCa.fingerprint, isForeignCa: true, caPem: foreignCa.pem };
}

/** The certificate of the own CA, for all names under which clients may reach this server, also former ones. */
async function ownTls(
  { listen, publicUrl }: ListenerOptions,
  formerUrls: readonly string[],
  deps: Deps,
): Promise<OwnTls> {
  const { openOwnTls, ownNames } = await import("./own-tls.ts");
  const urls = [...(publicUrl === undefined ? [] : [publicUrl]), ...formerUrls];
  const names = urls.map((url) => new URL(url).hostname.replace(/^\[(.*)\]$/, "$1"));
  return openOwnTls(deps, ownNames([...names, listen.hostname, hostname()]));
}

async function openAcmeListeners(
  options: ListenerOptions,
  acme: AcmeTls,
  deps: Deps,
): Promise<OpenListeners> {
  const { db, log } = deps;
  const { openAcmeSource } = await import("./acme/source.ts");
  const { listenForChallenges } = await import("./acme/http-challenges.ts");
  const former = await keepFormerUrl(db);
  const own = await ownTls(options, former === undefined ? [] : [former], deps);
  const pinnedListen = await ownCaListen(options, acme, former, db);
  const source = withCa(await openAcmeSource(deps, own.source), options);
  const listeners = makeListeners({ ...options, tls: source }, log);
  const pinned =
    pinnedListen === undefined
      ? undefined
      : makeListeners({ ...options, listen: pinnedListen, tls: own.source }, log);
  let stopChallenges: (() => Promise<void>) | undefined;
  return {
    ...pinOf(options),
    bind() {
      const port = listeners.bind();
      const pinnedPort = pinned?.bind();
      if (pinnedPort !== undefined)
        log.info("nodes that pinned the own CA find it here", { port: pinnedPort });
      const { challengeListen: listen } = acme;
      const { publicUrl } = options;
      if (listen !== undefined && publicUrl !== undefined) {
        const find = (token: string) => challengeOf(db, token);
        stopChallenges = listenForChallenges({ listen, publicUrl, find }, log);
      }
      return port;
    },
    certificate: listeners.certificate,
    answerWith(app) {
      // Nothing to do: the other listener writes what is in memory, after the last answer of both.
      pinned?.answerWith({ ...byOwnCa(app), flush: async () => undefined });
      listeners.answerWith(app);
    },
    async stop() {
      await stopChallenges?.();
      await pinned?.stop();
      await listeners.stop();
    },
  };
}

/** The same application. It knows that these requests came by the listener of the own CA. */
function byOwnCa(app: Application): Application {
  const marked = (edge: Edge): Edge => ({ ...edge, isOwnCa: true });
  return {
    ...app,
    fetch: (request, edge) => app.fetch(request, marked(edge)),
    direct: app.direct.map((route) => ({
      ...route,
      answer: (request, edge, params) => route.answer(request, marked(edge), params),
    })),
  };
}

/** In `meta`. */
const formerKey = "own_ca_url";

/**
 * Where this control plane last served the certificate of its own CA, the address of the nodes that pinned it. Keeps it in `meta`, and is
 * called before this start stores its own URL (serve.ts): afterwards `publicUrlOf` does not say it any more.
 */
async function keepFormerUrl(db: Database): Promise<string | undefined> {
  const { publicUrl, caFingerprint, isForeignCa } = await publicUrlOf(db);
  if (caFingerprint === undefined || isForeignCa === true) return readMeta(db, formerKey);
  await db.writeFor("rows", (tx) => setMeta(tx, formerKey, publicUrl));
  return publicUrl;
}

/**
 * Where the certificate of the own CA is served: at `ownCaListen`, else at the port of the former URL; undefined: nowhere, because no node
 * pinned it. Throws bad_configuration where the public certificate would take the port of nodes that pinned the own CA.
 */
async function ownCaListen(
  { listen }: ListenerOptions,
  { ownCaListen: configured }: AcmeTls,
  former: string | undefined,
  db: Database,
): Promise<ListenAddress | undefined> {
  if (configured !== undefined) return configured === "none" ? undefined : configured;
  if (former === undefined) return undefined;
  const port = Number(new URL(former).port || 443);
  if (port !== listen.port) return { hostname: listen.hostname, port };
  const nodes = await queryNumber(db, "SELECT count(*) AS n FROM nodes WHERE state = 'active'");
  if (nodes === 0) return undefined;
  throw new AppError(
    "bad_configuration",
    `Nodes trust this control plane's own CA at port ${port}, so the public certificate cannot take this port`,
    {
      hint: "Serve it on another port with --listen and --public-url. If no node was registered with --ca-fingerprint, add --own-ca-listen none.",
    },
  );
}
