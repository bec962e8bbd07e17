// The service of names of any system: keeps the resolver running, points the system to it, and writes its state for other
// commands.

import { given } from "../../base/given.ts";
import { messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { ResolutionSettings } from "./lasting-settings.ts";
import type { LoadedNames } from "./names-reader.ts";
import { makePeerServers } from "./peer-servers.ts";
import { startResolver, type Resolver } from "./resolver.ts";
import { isInHostsFile, writeServiceState, type ServiceState, type Way } from "./service-state.ts";
import { indexNames } from "./name-index.ts";

/** After a failure, such as a full disk. */
export const afterFailureMs = 10_000;

const indexOf = ({ names, zones }: LoadedNames) => indexNames(names, zones);

type Options = {
  statePath: string;
  /** Point the system to the resolver (`keep`), or away from it (`without`). */
  settings: ResolutionSettings;
  /** Short names are found too. */
  search?: boolean;
  /** Networks whose nodes are answered, where the organization wants it; undefined: none. */
  peers?: readonly string[] | undefined;
};

/** `serve`: one look at resolver and system. Its result tells whether the names of an organization belong into the hosts file. */
export function makeService(
  { statePath, settings, search = false, peers: networks }: Options,
  { monotonic }: Pick<System, "monotonic">,
  log: Log,
) {
  const peerServers = makePeerServers(networks, { monotonic });
  const warn = onceEach(log);
  let resolver: Resolver | undefined;
  /** The names that the resolver has. */
  let served: LoadedNames | undefined;
  /** When the resolver last failed to start, monotonic ms, and why. */
  let failedAt: number | undefined;
  let fault: string | undefined;
  /** The state that was written last, as JSON. */
  let written = "";
  const keepResolver = async (known: LoadedNames) => {
    const isNew = served !== known;
    served = known;
    if (resolver !== undefined && isNew) resolver.use(indexOf(known));
    if (resolver !== undefined || (failedAt !== undefined && monotonic() - failedAt < afterFailureMs)) return;
    try {
      resolver = await startResolver(indexOf(known));
      failedAt = fault = undefined;
    } catch (error) {
      failedAt = monotonic();
      fault = messageOf(error);
    }
    warn(fault ?? "");
  };
  const save = (state: ServiceState) => {
    try {
      writeServiceState(state, statePath);
    } catch (error) {
      // Only `agent names` and the doctor read it: names must not depend on it.
      log.debug(messageOf(error));
    }
  };
  return {
    async serve(known: LoadedNames): Promise<(slug: string) => boolean> {
      await keepResolver(known);
      // Without a resolver, the system must not be pointed at it.
      const serving: Way = fault === undefined ? await settings.keep(known.zones) : settings.without(fault);
      const peers = await peerServers.serve(known);
      const state: ServiceState = {
        schema: 1,
        serving,
        ...given({ fault }),
        ...(search ? { search } : {}),
        suffixes: known.zones.flatMap(({ slug, suffix }) =>
          suffix === undefined ? [] : [{ slug, ...suffix }],
        ),
        peers,
      };
      const text = JSON.stringify(state);
      if (text !== written) save(state);
      written = text;
      return (slug) => isInHostsFile(slug, serving);
    },
    close() {
      resolver?.close();
      peerServers.close();
      settings.close();
    },
  };
}

/** Logs a warning unless it is the same as the last one. An empty text is no warning: the next one is logged again. */
export function onceEach(log: Log): (text: string) => void {
  let last = "";
  return (text) => {
    if (text !== last && text !== "") log.warn(text);
    last = text;
  };
}
