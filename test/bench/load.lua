-- wrk's part of the benches: sends the requests of a file in turn (a line each: method, path, bearer token, body,
-- separated by tabs) and prints one line of JSON. All requests are built before the clock starts. With a second argument
-- each connection waits so many milliseconds, on average, before each request.

local requests = {}
local at = 0
local count = 0

function init(args)
  for line in io.lines(args[1]) do
    local method, path, token, body = line:match("^(%S+)\t(%S+)\t(%S*)\t(.*)$")
    local headers = {}
    if token ~= "" then headers["Authorization"] = "Bearer " .. token end
    if body == "" then body = nil else headers["Content-Type"] = "application/json" end
    count = count + 1
    requests[count] = wrk.format(method, path, headers, body)
  end
  local pause = tonumber(args[2])
  if pause then
    math.randomseed(1)
    function delay() return math.random(0, 2 * pause) end
  end
end

function request()
  at = at + 1
  if at > count then at = 1 end
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,"refused":%d,"broken":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
