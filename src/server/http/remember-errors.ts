// Remembers the last warning or error of a server, which the list of servers shows.

import { clean, type Fields, type Log } from "../../base/log.ts";

/** `at`: ms. */
export type LastError = { text: string; at: number };

const maxErrorLength = 300;

/** A log that remembers its last warning or error. */
export function rememberErrors(log: Log, now: () => number): { log: Log; last(): LastError | undefined } {
  let last: LastError | undefined;
  const remembered =
    (write: Log["warn"]): Log["warn"] =>
    (message, fields) => {
      last = { text: clean(textOf(message, fields), maxErrorLength), at: now() };
      write(message, fields);
    };
  return {
    log: {
      debug: (message, fields) => log.debug(message, fields),
      info: (message, fields) => log.info(message, fields),
      warn: remembered((message, fields) => log.warn(message, fields)),
      error: remembered((message, fields) => log.error(message, fields)),
    },
    last: () => last,
  };
}

function textOf(message: string, fields: Fields = {}): string {
  const { reason } = fields;
  return reason === undefined || reason === null ? message : `${message}: ${reason}`;
}
