// Where an engine listens for packets, by its configuration.

import { given } from "../base/given.ts";
import { valueAt, type YamlMap } from "../base/yaml.ts";

/** `host`: the one address that it binds; unset: all. `port`: unset if the configuration names none, 0 for any free one. */
export function listenPlaceIn(config: YamlMap): { host?: string; port?: number } {
  const host = valueAt(config, "listen.host");
  const port = valueAt(config, "listen.port");
  const isOne = typeof host === "string" && !["::", "[::]", "0.0.0.0"].includes(host);
  return given({ host: isOne ? host : undefined, port: typeof port === "number" ? port : undefined });
}
