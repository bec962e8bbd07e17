// The open alarms of an organization, above its log.

import { useEffect } from "preact/hooks";
import { apiPath } from "../../api/endpoint.ts";
import { alarmsApi } from "../../api/webhooks/alarms.ts";
import { onEvent } from "../contact/live.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { State, When } from "../ui/parts.tsx";

export function OpenAlarms({ slug }: { slug: string }) {
  const path = apiPath(alarmsApi.list, { slug });
  useEffect(() => onEvent(({ type }) => void (type.startsWith("alarm.") && refresh(path))), [path]);
  const { data } = useResource(path, { isCalm: true });
  const open = (data ?? []).filter(({ ended_at }) => ended_at === null);
  if (open.length === 0) return null;
  return (
    <ol class="lines recent" aria-label="Open alarms">
      {open.map(({ id, title, text, urgent, since }) => (
        <li key={id}>
          <State name={urgent ? "attention" : "waiting"} word="alarm" />
          <span class="cut" title={text}>
            <bdi>{title}</bdi>
          </span>
          <When at={since} />
        </li>
      ))}
    </ol>
  );
}
