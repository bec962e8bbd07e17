// Where the requests of a node go.

export const paths = {
  health: "/healthz",
  readiness: "/readyz",
  organizations: "/api/org/",
  organization: (slug: string) => `/api/org/${slug}/`,
  nodes: (slug: string) => `/api/org/${slug}/nodes/`,
  register: (slug: string) => `/api/org/${slug}/nodes/register/`,
  node: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/`,
  config: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/config/`,
  downloadConfig: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/download_config/`,
  checkin: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/checkin/`,
  renewCert: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/renew_cert/`,
  restore: (slug: string, id: number) => `/api/org/${slug}/nodes/${id}/restore/`,
} as const;
