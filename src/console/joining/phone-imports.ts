// Phones that this tab creates, or imports again. Their keys exist only in this memory, which outlives the page that
// shows them: a user who waits may look at other pages, and approve the phone there.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { phonesApi } from "../../api/phones.ts";
import { effect, signal } from "@preact/signals";
import type { Node } from "../../protocol/node.ts";
import { ApiError, call } from "../contact/api.ts";
import { makePhoneKey, type PhoneKey } from "./phone-key.ts";
import { refresh } from "../contact/resource.ts";
import { tell } from "../ui/toast.tsx";

/** `phone`: the one to import again; undefined for a new one, which alone takes a name and groups. */
export type Desired = { phone: Node | undefined; name: string; groups: string[]; system: "android" | "ios" };
export type PhoneImport = Desired & {
  /** While the control plane is asked. */
  key?: PhoneKey;
  isWaiting?: boolean;
  error?: ApiError;
  /** `file`: undefined once it was downloaded, with its key. */
  made?: { node: Node; file: string | undefined };
};

const pauseS = 5;

/** By organization. */
const imports = signal<Readonly<Record<string, PhoneImport | undefined>>>({});
export const importOf = (slug: string): PhoneImport | undefined =>
  Object.hasOwn(imports.value, slug) ? imports.value[slug] : undefined;
export const putImport = (slug: string, next: PhoneImport | undefined): void => {
  imports.value = { ...imports.peek(), [slug]: next };
};

const keep = (event: Event) => event.preventDefault();
/** The browser asks before it forgets a key that exists only here. */
effect(() => {
  const hasKey = Object.values(imports.value).some((each) => (each?.key ?? each?.made?.file) !== undefined);
  if (hasKey) addEventListener("beforeunload", keep);
  else removeEventListener("beforeunload", keep);
});

/** Asks until there is a file, or a refusal, or the user gives up. */
export async function importPhone(slug: string, desired: Desired): Promise<void> {
  const key = await makePhoneKey();
  const { phone, name, groups, system } = desired;
  const body = { system, host_public_key: key.publicPem, ...(groups.length === 0 ? {} : { groups }) };
  const send = () =>
    phone === undefined
      ? call(phonesApi.create, { slug }, { ...body, name })
      : call(phonesApi.import, { slug, id: phone.id }, body);
  let isWaiting = false;
  putImport(slug, { ...desired, key });
  while (imports.peek()[slug]?.key === key) {
    let restS = pauseS;
    let next: PhoneImport;
    try {
      const answer = await send();
      if ("node" in answer) {
        // The file ends in its section `pki`, which this line completes: the key never leaves the browser.
        const file = `${answer.site}  key: ${JSON.stringify(key.privatePem)}\n`;
        next = { ...desired, made: { node: answer.node, file } };
        tell(`The file of ${answer.node.name} is ready, on the page Phones.`);
      } else {
        isWaiting = true;
        restS = answer.retry_after;
        next = { ...desired, key, isWaiting };
      }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      next = isPassing(error, isWaiting) ? { ...desired, key, isWaiting, error } : { ...desired, error };
    }
    if (imports.peek()[slug]?.key !== key) return;
    putImport(slug, next);
    if (next.made !== undefined) await refresh(apiPath(nodesApi.list, { slug }));
    await new Promise((wake) => setTimeout(wake, next.key === undefined ? 0 : restS * 1000));
  }
}

/**
 * Whether the same key is asked for again (a new one would be another request): after no answer (0), the end of the session, and failures
 * of the server. After 429 only a request that waits goes on.
 */
function isPassing({ status }: ApiError, isWaiting: boolean): boolean {
  return status === 0 || status === 401 || status >= 500 || (status === 429 && isWaiting);
}
