-- Jobs of one partition are held (priority 0) while a controller of `vgpu cluster` decides for it.
--
-- slurm.conf: JobSubmitPlugins=lua. In job_submit.lua beside it, before its last line:
--    dofile("/etc/slurm/vgpu_cluster.lua")
-- What job_submit.lua has defined before is called first. A site without one copies this file to that name.
--
-- The controller writes the time of its last look (UTC, seconds) into the heartbeat. When that is older than FRESH_S,
-- jobs are not held: Slurm's own order continues. Nothing here waits: slurmctld holds its locks meanwhile.

local PARTITION = "gpu"
local HEARTBEAT = "/run/vgpud/cluster/heartbeat"
local FRESH_S = 60

local submit_before, modify_before = slurm_job_submit, slurm_job_modify

local function controller_decides()
   local file = io.open(HEARTBEAT, "r")
   if file == nil then
      return false
   end
   local beaten = tonumber(file:read("*l") or "")
   file:close()
   return beaten ~= nil and os.difftime(os.time(), beaten) <= FRESH_S
end

-- Whether a job is of our partition, also by default; what else it names besides, which is too much.
local function is_ours(names, partitions)
   if names == nil or names == "" then
      for name, partition in pairs(partitions) do
         if name == PARTITION and partition.flag_default == 1 then
            return true, false
         end
      end
      return false, false
   end
   for name in names:gmatch("[^,]+") do
      if name == PARTITION then
         return true, name ~= names
      end
   end
   return false, false
end

local function refuse(text)
   slurm.log_user("partition %s: %s", PARTITION, text)
   return slurm.ERROR
end

local function is_given(text)
   return text ~= nil and text ~= ""
end

-- Whether a request names more than CPUs: from 23.11 on --cpus-per-task=2 is in tres_per_task as well, as cpu=2.
local function has_gpus(text)
   for part in (text or ""):gmatch("[^,]+") do
      if not part:find("^cpu[=:]") then
         return true
      end
   end
   return false
end

-- Of texts that the controller reads: what follows a line break in one it cannot see.
local function unreadable(job)
   for name, text in pairs({account = job.account, comment = job.comment}) do
      if is_given(text) and text:find("%c") ~= nil then
         return "the " .. name .. " has a line break or another control character: leave it out"
      end
   end
   return nil
end

-- What the queue cannot place is refused at once, with what to write instead.
local function objection(job)
   if has_gpus(job.tres_per_job) or has_gpus(job.tres_per_task) or has_gpus(job.tres_per_socket) then
      return "ask for GPUs of each node, --gres=gpu:N or --gres=shard:N, not with --gpus or --gpus-per-task"
   end
   if is_given(job.req_nodes) or is_given(job.exc_nodes) then
      return "the queue chooses the nodes: leave --nodelist and --exclude out"
   end
   if is_given(job.features) then
      return "name the model with --gres=gpu:MODEL:N: leave --constraint out"
   end
   if job.begin_time ~= nil and job.begin_time ~= slurm.NO_VAL and os.difftime(job.begin_time, os.time()) > 60 then
      return "the queue starts jobs when there is capacity: leave --begin out"
   end
   if job.min_nodes ~= slurm.NO_VAL and job.max_nodes ~= slurm.NO_VAL
      and job.max_nodes ~= 0 and job.min_nodes ~= job.max_nodes then
      return "write one number of nodes, --nodes=N"
   end
   return nil
end

function slurm_job_submit(job, partitions, uid)
   local code = submit_before and submit_before(job, partitions, uid) or slurm.SUCCESS
   local ours, others = is_ours(job.partition, partitions)
   if code ~= slurm.SUCCESS or not ours or not controller_decides() then
      return code
   end
   local text = others and "name this partition alone" or unreadable(job) or objection(job)
   if text ~= nil then
      return refuse(text)
   end
   if job.priority ~= 0 then  -- 0: its user holds it
      job.priority = 0
      job.admin_comment = "vgpu: queued"  -- the reason may be the same for both
   end
   return slurm.SUCCESS
end

-- A user who releases a job hands it to the queue, not to Slurm's order: it does not start before the controller has
-- seen it and holds it again. The controller itself calls as an admin.
function slurm_job_modify(job, record, partitions, uid)
   local code = modify_before and modify_before(job, record, partitions, uid) or slurm.SUCCESS
   local ours = record.partition == PARTITION and uid == record.user_id and uid ~= 0
   if code ~= slurm.SUCCESS or not ours or not controller_decides() then
      return code
   end
   local text = unreadable(job)
   if text ~= nil then
      return refuse(text)
   end
   if job.priority == 0 and record.priority == 0 then
      return refuse("it waits in the queue already: submit it with --hold, or cancel it")
   end
   if job.priority ~= slurm.NO_VAL and job.priority ~= 0 then
      job.begin_time = os.time() + FRESH_S
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
