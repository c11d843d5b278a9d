-- job_submit.lua: refuses at once what Slurm would keep waiting for ever, and says why. For a site that has no
-- job_submit.lua of its own; else call vgpu_refusal from yours. JobSubmitPlugins=lua in slurm.conf.

-- true where SelectTypeParameters has MULTIPLE_SHARING_GRES_PJ (Slurm 23.11 or newer)
local SEVERAL = false
local PER_GPU = 1000
-- true where Slurm gives no whole GPU away while shards of it are in use, as in 24.11 and 25.11. 22.05 does, once one of
-- several jobs with shards on that GPU has ended: vgpud then refuses the step. So a batch job's one whole GPU is asked for as
-- all of its shards.
local KEEPS_APART = false

-- Why a job with this request for GPUs is refused, or nil: the text of --gres and its relatives.
function vgpu_refusal(text)
   if text == nil then return nil end
   for word in string.gmatch(text, "[^,]+") do
      local count = tonumber(string.match(word, "shard[:=].-(%d+)$"))
      if count and count > PER_GPU and not SEVERAL then
         return string.format("vgpu: shard:%d is more than one GPU (%d shards): a job on several GPUs needs Slurm 23.11"
                              .. " or newer with MULTIPLE_SHARING_GRES_PJ in SelectTypeParameters; ask for --gres=gpu:%d",
                              count, PER_GPU, math.ceil(count / PER_GPU))
      end
   end
   return nil
end

-- "gres:gpu:1" as "gres:shard:1000", with its model if it has one; other requests as they are.
function vgpu_as_shards(text)
   local prefix, rest = string.match(text, "^(gres[:/])gpu(.*)$")
   if KEEPS_APART or prefix == nil then return text end
   local model = string.match(rest, "^(:%a[%w_.-]*)$") or string.match(rest, "^(:%a[%w_.-]*):1$")
   if model == nil and rest ~= "" and rest ~= ":1" then return text end
   return prefix .. "shard" .. (model or "") .. ":" .. PER_GPU
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   for _, text in ipairs({job_desc.tres_per_node or "", job_desc.tres_per_job or "", job_desc.tres_per_task or ""}) do
      local why = vgpu_refusal(text)
      if why then
         slurm.log_user("%s", why)
         return slurm.ESLURM_INVALID_GRES or slurm.ERROR
      end
   end
   -- not of srun, whose step would still ask for what it was given
   if job_desc.tres_per_node and job_desc.script ~= nil and job_desc.script ~= "" then
      job_desc.tres_per_node = vgpu_as_shards(job_desc.tres_per_node)
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end

if slurm then return slurm.SUCCESS end
